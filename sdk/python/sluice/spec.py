"""Volumes for fsspec: `sluice://` and `jfs://`.

The part after `://` is a path in the volume. What is opened is said by the options of the file
system: those of `sluice.Client`.
"""

from __future__ import annotations

import datetime
import io
import os
import stat as _stat
import uuid
from collections.abc import Iterable
from typing import Any

from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path

from . import _process
from ._client import Client
from ._file import File

_OF_FSSPEC = (
    "asynchronous",
    "batch_size",
    "listings_expiry_time",
    "loop",
    "max_paths",
    "use_listings_cache",
)
_BUFFER = 4 << 20


class SluiceFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A volume as a file system of fsspec."""

    protocol = ("sluice", "jfs", "juicefs")
    root_marker = "/"

    def __init__(self, name: str = "", meta: str | None = None, auto_mkdir: bool = False, **options: Any):
        if self._cached:
            return
        if meta is None:
            raise TypeError("SluiceFileSystem needs the option meta: the URL of the metadata")
        of_fsspec = {key: options.pop(key) for key in _OF_FSSPEC if key in options}
        super().__init__(**of_fsspec)
        self.auto_mkdir = auto_mkdir
        self.client = Client(name, meta, **options)

    @property
    def fsid(self) -> str:
        return f"sluice_{self.client.status()['Setting']['Name']}"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, (list, tuple, set)):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for protocol in cls.protocol:
            if path.startswith(f"{protocol}://"):
                path = path[len(protocol) + 3 :]
                break
        return "/" + path.strip("/") if path.strip("/") else cls.root_marker

    @classmethod
    def _parent(cls, path: Any) -> str:
        parent: str = cls._strip_protocol(path).rsplit("/", 1)[0]
        return parent or "/"

    def _make_parent(self, path: str) -> None:
        if self.auto_mkdir:
            self.client.makedirs(self._parent(path), exist_ok=True)

    # Names.

    def mkdir(self, path: Any, create_parents: bool = True, mode: int = 0o777, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.client.makedirs(self._parent(path), mode, exist_ok=True)
        self.client.mkdir(path, mode)

    def makedirs(self, path: Any, exist_ok: bool = False, mode: int = 0o777) -> None:
        self.client.makedirs(self._strip_protocol(path), mode, exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        self.client.rmdir(self._strip_protocol(path))

    def rm_file(self, path: Any) -> None:
        self.client.unlink(self._strip_protocol(path))

    def _rm(self, path: Any) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = path if isinstance(path, list) else [path]
        if maxdepth is not None or any(char in stringify_path(one) for one in paths for char in "*?["):
            paths = sorted(self.expand_path(path, recursive=recursive, maxdepth=maxdepth), reverse=True)
            if maxdepth is not None:
                recursive = False
        for one in map(self._strip_protocol, paths):
            is_dir = _stat.S_ISDIR(self.client.lstat(one).st_mode)
            if is_dir and recursive:
                self.client.rmr(one)
            elif is_dir and maxdepth is not None:
                self.client.rmdir(one)
            elif is_dir:
                raise ValueError(f"{one} is a directory: it needs recursive=True")
            else:
                self.client.unlink(one)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = True, maxdepth: int | None = None, **kwargs: Any
    ) -> None:
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        if stringify_path(path2).endswith("/") or self.client.isdir(new):
            new = f"{new.rstrip('/')}/{old.rsplit('/', 1)[-1]}"
        self._make_parent(new)
        self.client.rename(old, new)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """A copy that shares its data with the original."""
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        self._make_parent(new)
        mode = self.client.lstat(old).st_mode
        if _stat.S_ISLNK(mode):
            mode = self.client.stat(old).st_mode
        elif _stat.S_ISREG(mode):
            try:
                return self.client.clone(old, new)
            except FileExistsError:
                pass
        if _stat.S_ISDIR(mode):
            return self.client.makedirs(new, exist_ok=True)
        with File(self.client, old, "r") as source, File(self.client, new, "wct") as target:
            target._file().copy_from(0, source._file(), 0, source.stat().st_size)

    def link(self, src: Any, dst: Any, **kwargs: Any) -> None:
        self.client.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src: Any, dst: Any, **kwargs: Any) -> None:
        self.client.symlink(self._strip_protocol(src), self._strip_protocol(dst))

    # Attributes.

    def _info(self, path: str, found: os.stat_result) -> dict[str, Any]:
        link = _stat.S_ISLNK(found.st_mode)
        info: dict[str, Any] = {}
        if link:
            info["destination"] = self.client.readlink(path)
            try:
                found = self.client.stat(path)
            except OSError:
                pass
        kind = "other"
        if _stat.S_ISDIR(found.st_mode):
            kind = "directory"
        elif _stat.S_ISREG(found.st_mode):
            kind = "file"
        return {
            "name": path,
            "size": found.st_size if kind == "file" else 0,
            "type": kind,
            "created": found.st_ctime,
            "islink": link,
            "mode": found.st_mode,
            "uid": found.st_uid,
            "gid": found.st_gid,
            "mtime": found.st_mtime,
            "ino": found.st_ino,
            "nlink": found.st_nlink,
            **info,
        }

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._info(path, self.client.lstat(path))

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            items = self.client.listdir(path, detail=True)
        except NotADirectoryError:
            return [self.info(path)] if detail else [path]
        top = path.rstrip("/")
        if not detail:
            return [f"{top}/{name}" for name, _ in items]
        return [self._info(f"{top}/{name}", found) for name, found in items]

    def lexists(self, path: Any, **kwargs: Any) -> bool:
        try:
            self.client.lstat(self._strip_protocol(path))
        except OSError:
            return False
        return True

    def isdir(self, path: Any) -> bool:
        return self.client.isdir(self._strip_protocol(path))

    def islink(self, path: Any) -> bool:
        try:
            return _stat.S_ISLNK(self.client.lstat(self._strip_protocol(path)).st_mode)
        except OSError:
            return False

    def created(self, path: Any) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.timezone.utc)

    def modified(self, path: Any) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def chmod(self, path: Any, mode: int) -> None:
        self.client.chmod(self._strip_protocol(path), mode)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self._make_parent(path)
        with self.client.open(path, "wb" if truncate else "ab", buffering=0):
            pass
        self.client.utime(path)

    # Content.

    def _open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if not mode.startswith("r"):
            self._make_parent(path)
            if not autocommit and mode[0] in "wx":
                return _Deferred(self.client, path, exclusive=mode.startswith("x"))
        buffering = block_size if isinstance(block_size, int) and block_size > 1 else -1
        return self.client.open(path, mode if "b" in mode else mode + "b", buffering)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        (content,) = self.client.read_files([(self._strip_protocol(path), start, end)])
        if isinstance(content, OSError):
            raise content
        return content

    def cat_ranges(
        self,
        paths: list[Any],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Reads ranges of files in parallel."""
        if not isinstance(paths, list):
            raise TypeError("paths is no list")
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        names = [self._strip_protocol(path) for path in paths]
        wanted = list(zip(names, starts, ends, strict=True))
        read = self.client.read_files(wanted)
        if on_error != "return":
            for content in read:
                if isinstance(content, OSError):
                    raise content
        return read

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive, **kwargs)
        many = len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)
        if not many:
            return self.cat_file(paths[0])
        files = [name for name in paths if not (recursive and self.isdir(name))]
        contents = dict(zip(files, self.client.read_files(files)))
        for content in contents.values():
            if isinstance(content, OSError) and on_error == "raise":
                raise content
        if on_error == "omit":
            return {name: content for name, content in contents.items() if not isinstance(content, OSError)}
        return contents

    def pipe_file(self, path: Any, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if self._intrans or mode == "create":
            super().pipe_file(path, value, mode=mode, **kwargs)
            return
        path = self._strip_protocol(path)
        self._make_parent(path)
        self.client.write_files([(path, bytes(value))])

    def pipe(self, path: Any, value: bytes | None = None, **kwargs: Any) -> None:
        if not isinstance(path, dict) or self._intrans or kwargs:
            super().pipe(path, value, **kwargs)
            return
        files = [(self._strip_protocol(name), bytes(content)) for name, content in path.items()]
        for parent in {self._parent(name) for name, _ in files}:
            self._make_parent(f"{parent}/x")
        self.client.write_files(files)

    def get_file(self, rpath: Any, lpath: Any, callback: Any = None, outfile: Any = None, **kwargs: Any) -> None:
        path = self._strip_protocol(rpath)
        if outfile is None and not isfilelike(lpath):
            if self.isdir(path):
                os.makedirs(lpath, exist_ok=True)
                return
            if parent := os.path.dirname(stringify_path(lpath)):
                os.makedirs(parent, exist_ok=True)
        with self.client.open(path, "rb", buffering=0) as source:
            if callback is not None:
                callback.set_size(source.stat().st_size)
            given = outfile or (lpath if isfilelike(lpath) else None)
            target = given or open(lpath, "wb")
            try:
                buffer = memoryview(bytearray(_BUFFER))
                while count := source.readinto(buffer):
                    target.write(buffer[:count])
                    if callback is not None:
                        callback.relative_update(count)
            finally:
                if given is None:
                    target.close()

    def _isfilestore(self) -> bool:
        return True


class _Deferred(io.BufferedWriter):
    """A file of a transaction: it gets its name when the transaction ends."""

    def __init__(self, client: Client, path: str, exclusive: bool):
        parent, name = path.rsplit("/", 1)
        self._client, self._path, self._exclusive = client, path, exclusive
        # In the same directory, so that its name is changed in one step.
        self._hidden = f"{parent}/.{name[:200]}.{uuid.uuid4().hex[:12]}.part"
        super().__init__(File(client, self._hidden, "wx"), 1 << 20)
        _process.close_file_at_exit(self)

    def commit(self) -> None:
        """Gives the file its name."""
        self.close()
        if self._exclusive:
            self._client.rename_noreplace(self._hidden, self._path)
        else:
            self._client.rename(self._hidden, self._path)

    def discard(self) -> None:
        """Removes the file."""
        self.close()
        self._client.unlink(self._hidden)
