"""Files as those of `io`."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _process

if TYPE_CHECKING:
    from ._client import Client
    from ._native import File as NativeFile


class File(io.RawIOBase):
    """An open file. Reads go straight into the buffer of the caller, and other threads run
    meanwhile. `Client.open` puts the buffers and the decoder of `io` around it."""

    def __init__(self, client: Client, path: str | os.PathLike[str], flags: str, mode: int = 0o666):
        # What `close` needs comes first: it also runs if opening fails.
        self._native: NativeFile | None = None
        self._generation = _process.generation
        self._client = client
        self._at = 0
        self._flags = flags
        self.name = os.fspath(path)
        self.mode = "rb+" if "r" in flags and self.writable() else "wb" if self.writable() else "rb"
        native = self._native = client._volume().open(os.fsencode(path), flags, mode)
        if "a" in flags:
            self._at = native.size()

    def _file(self) -> NativeFile:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._native is None or self._generation != _process.generation:
            # The file of a parent process.
            if self.writable():
                raise OSError(errno.EBADF, "a file that a parent process opened to write", self.name)
            self._native = self._client._volume().open(os.fsencode(self.name), self._flags, 0)
            self._generation = _process.generation
        return self._native

    def readable(self) -> bool:
        return "r" in self._flags

    def writable(self) -> bool:
        return "w" in self._flags or "a" in self._flags

    def seekable(self) -> bool:
        return True

    def _check(self, allowed: bool, what: str) -> None:
        if not allowed:
            raise io.UnsupportedOperation(what)

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer from the current position; returns the number of bytes."""
        self._check(self.readable(), "not readable")
        count = self._file().readinto(_flat(buffer), self._at)
        self._at += count
        return count

    def readall(self) -> bytes:
        self._check(self.readable(), "not readable")
        file = self._file()
        data = file.read(max(file.size() - self._at, 0), self._at)
        self._at += len(data)
        return data

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads up to `size` bytes, all that there are if it is left out."""
        if size is None or size < 0:
            return self.readall()
        self._check(self.readable(), "not readable")
        data = self._file().read(size, self._at)
        self._at += len(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Reads up to `size` bytes at `offset`. The position does not change, so threads may share
        the file."""
        self._check(self.readable(), "not readable")
        return self._file().read(size, offset)

    def readinto_at(self, offset: int, buffer: Any) -> int:
        """Reads into a buffer at `offset`. The position does not change."""
        self._check(self.readable(), "not readable")
        return self._file().readinto(_flat(buffer), offset)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """Reads ranges, each an offset and a length, in parallel."""
        self._check(self.readable(), "not readable")
        return self._file().read_ranges(list(ranges))

    def write(self, data: Any, /) -> int:
        """Writes all of `data`, at the end if the file was opened to append."""
        self._check(self.writable(), "not writable")
        file, flat = self._file(), _flat(data)
        if "a" in self._flags:
            self._at = file.append(flat) + flat.nbytes
        else:
            file.write(flat, self._at)
            self._at += flat.nbytes
        return flat.nbytes

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        file = self._file()
        if whence == os.SEEK_SET:
            at = offset
        elif whence == os.SEEK_CUR:
            at = self._at + offset
        elif whence == os.SEEK_END:
            at = file.size() + offset
        else:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if at < 0:
            raise OSError(errno.EINVAL, "a position before the begin of the file", self.name)
        self._at = at
        return at

    def tell(self) -> int:
        self._file()
        return self._at

    def truncate(self, size: int | None = None, /) -> int:
        self._check(self.writable(), "not writable")
        size = self._at if size is None else size
        self._file().truncate(size)
        return size

    def flush(self) -> None:
        """Nothing: what `write` took is the library's, which stores it with `sync`, `close` or by
        and by. It is not what other clients see already."""
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def sync(self) -> None:
        """Stores what was written. Other clients that open the file then see it."""
        self._file().flush()

    def fsync(self) -> None:
        """As `sync`; the data also survives a power cut, as far as the database and the object
        store promise that."""
        self._file().fsync()

    def stat(self) -> os.stat_result:
        from ._client import stat_result

        return stat_result(self._file().stat())

    def close(self) -> None:
        """Stores what was written and closes the file."""
        if self.closed:
            return
        try:
            if self._native is not None and self._generation == _process.generation:
                self._native.close()
        finally:
            super().close()

    def __fspath__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        if self.writable():
            raise TypeError("a file that is written cannot be pickled")
        return _reopen, (self._client, self.name, self._flags, self._at)

    def __repr__(self) -> str:
        return f"<sluice.File {self.name!r} mode={self.mode!r}>"


def _reopen(client: Client, path: str, flags: str, at: int) -> File:
    file = File(client, path, flags)
    file.seek(at)
    return file


def _flat(buffer: Any) -> memoryview:
    """The bytes of a buffer."""
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
