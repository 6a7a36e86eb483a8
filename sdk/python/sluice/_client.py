"""A volume, as a user sees it."""

from __future__ import annotations

import errno
import io
import os
import stat as _stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _process, _users
from ._file import File

if TYPE_CHECKING:
    from ._native import Volume

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

#: Bytes that a file object reads ahead, or gathers before it hands them on. Larger calls pass it by.
_BUFFER = 128 << 10
#: Variables of the environment that opening a volume may see.
_VARIABLES = (
    "META_PASSWORD",
    "META_PASSWORD_FILE",
    "REDIS_PASSWORD",
    "SENTINEL_PASSWORD",
    "JFS_RSA_PASSPHRASE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
#: Options that are passed on by name.
_OPTIONS = (
    "bucket",
    "read_only",
    "no_bgjob",
    "open_cache",
    "heartbeat",
    "cache_dir",
    "cache_size",
    "cache_group",
    "writeback",
    "buffer_size",
    "prefetch",
    "max_readahead",
    "max_uploads",
    "max_downloads",
    "subdir",
)
#: Options of JuiceFS' client that have no meaning here. They are taken and left aside.
_WITHOUT_MEANING = frozenset(
    "storage_class no_session backup_meta backup_skip_trash free_space_ratio cache_partial_only"
    " verify_cache_checksum cache_eviction cache_scan_interval cache_expire upload_limit"
    " download_limit max_deletes skip_dir_nlink skip_dir_mtime io_retries get_timeout put_timeout"
    " fast_resolve attr_cache entry_cache dir_entry_cache debug no_usage_report access_log"
    " push_gateway push_interval push_auth push_labels push_graphite push_remote_write"
    " push_remote_write_auth".split()
)


def stat_result(fields: tuple[int, int, int, int, int, int, int, int, int]) -> os.stat_result:
    """Attributes as `os.stat` returns them."""
    mode, ino, nlink, uid, gid, size, atime, mtime, ctime = fields
    times = (atime, mtime, ctime)
    more = {
        "st_atime": atime / 1e9,
        "st_mtime": mtime / 1e9,
        "st_ctime": ctime / 1e9,
        "st_atime_ns": atime,
        "st_mtime_ns": mtime,
        "st_ctime_ns": ctime,
        "st_blksize": 4 << 20,
        "st_blocks": -(-size // 4096) * 8,
    }
    whole = tuple(time // 1_000_000_000 for time in times)
    return os.stat_result((mode, ino, 0, nlink, uid, gid, size, *whole), more)


class Client:
    """A volume without a mount.

    `name` is for messages; `meta` names the metadata of the volume, as for the command `sluice`.
    Clients with the same `meta` and options share connections and memory. Clients are pickled as
    their options. After a fork, a child opens the volume anew with its first call.

    Who calls is what the program says: `user` by name, or `uid`, `gid`, `groups`, `superuser` and
    `umask`; by default the user of the process. Nothing authenticates it.
    """

    def __init__(
        self,
        name: str,
        meta: str,
        *,
        bucket: str = "",
        read_only: bool = False,
        no_bgjob: bool = True,
        open_cache: str | float = "0",
        heartbeat: str | float = "12",
        cache_dir: str = "memory",
        cache_size: str | int = "100M",
        cache_group: str = "",
        writeback: bool = False,
        buffer_size: str | int = "300M",
        prefetch: int = 1,
        max_readahead: str | int = "0",
        max_uploads: int = 20,
        max_downloads: int = 200,
        subdir: str = "",
        user: str | None = None,
        uid: int | None = None,
        gid: int | None = None,
        groups: Iterable[int | str] | None = None,
        superuser: bool | None = None,
        umask: int | None = None,
        **without_meaning: Any,
    ):
        given = dict(locals())
        self._opened: Volume | None = None
        self._generation = -1
        for option in without_meaning:
            if option not in _WITHOUT_MEANING:
                raise TypeError(f"Client() got an unexpected keyword argument '{option}'")
            warnings.warn(f"the option {option} has no meaning in Sluice", stacklevel=2)
        self.name = name
        self._url = meta
        self._options = [(option, _text(given[option])) for option in _OPTIONS if given[option] != ""]
        self._user = _users.fields(user, uid, gid, groups, superuser, umask)
        self._closed = False
        self._volume()

    def _volume(self) -> Volume:
        if self._generation == _process.generation and self._opened is not None:
            return self._opened
        if self._closed:
            raise ValueError("I/O operation on closed client")
        variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        native = _process.native()
        # Threads that do this at once share the volume.
        opened: Volume = native.Volume(self._url, self._options, variables, self._user)
        self._opened, self._generation = opened, _process.generation
        _process.close_client_at_exit(self)
        if self._closed:
            # By another thread, meanwhile.
            self.close()
            raise ValueError("I/O operation on closed client")
        return opened

    def as_user(
        self,
        user: str | None = None,
        *,
        uid: int | None = None,
        gid: int | None = None,
        groups: Iterable[int | str] | None = None,
        superuser: bool | None = None,
        umask: int | None = None,
    ) -> Client:
        """The same volume as another user sees it."""
        other = object.__new__(Client)
        other.__setstate__(
            {**self.__getstate__(), "user": _users.fields(user, uid, gid, groups, superuser, umask)}
        )
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "url": self._url, "options": self._options, "user": self._user}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name, self._url = state["name"], state["url"]
        self._options, self._user = state["options"], state["user"]
        self._opened, self._generation, self._closed = None, -1, False

    def close(self, terminate: bool = False) -> None:
        """Stores everything that was written, and lets go of the volume. It is closed when its last
        client and file are."""
        self._closed = True
        opened, self._opened = self._opened, None
        if opened is not None and self._generation == _process.generation:
            opened.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Other threads run while the volume is closed.
        try:
            self.close()
        except (AttributeError, OSError, TypeError, ValueError):
            pass

    def __repr__(self) -> str:
        return f"<sluice.Client {self.name!r}>"

    # Files.

    @overload
    def open(
        self, path: Path, mode: Literal["rb"], buffering: Literal[0]
    ) -> File: ...
    @overload
    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any: ...
    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Opens a file as the function `open` does, and returns what it would."""
        main = [letter for letter in mode if letter in "rwxa"]
        if len(set(mode)) != len(mode) or len(main) != 1 or set(mode) - set("rwxa+bt"):
            raise ValueError(f"invalid mode: {mode!r}")
        binary = "b" in mode
        if binary and "t" in mode:
            raise ValueError("can't have text and binary mode at once")
        if binary and (encoding is not None or errors is not None or newline is not None):
            raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
        if not binary and buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        flags = {"r": "r", "w": "wct", "x": "wx", "a": "ac"}[main[0]]
        if "+" in mode:
            flags += "w" if main[0] == "r" else "r"
        raw = File(self, os.fsdecode(path), flags)
        opened: Any = raw
        try:
            if buffering != 0:
                size = buffering if buffering > 1 else _BUFFER
                if raw.readable() and raw.writable():
                    opened = io.BufferedRandom(raw, size)
                elif raw.writable():
                    opened = io.BufferedWriter(raw, size)
                else:
                    opened = io.BufferedReader(raw, size)
            if not binary:
                opened = io.TextIOWrapper(opened, encoding, errors, newline, line_buffering=buffering == 1)
                opened.mode = mode
        except BaseException:
            raw.close()
            raise
        if raw.writable():
            _process.close_file_at_exit(opened)
        return opened

    def read_files(
        self, wanted: Iterable[Path | tuple[Path, int | None, int | None]]
    ) -> list[bytes | OSError]:
        """Reads many files, or ranges of them (path, begin, end), in parallel. The results are in
        the order asked for; that of a file that cannot be read is its error."""
        items = [item if isinstance(item, tuple) else (item, None, None) for item in wanted]
        return self._volume().read_files([(os.fsencode(path), begin, end) for path, begin, end in items])

    def write_files(self, files: Iterable[tuple[Path, bytes]]) -> None:
        """Writes many whole files in parallel. They are stored when it returns."""
        self._volume().write_files([(os.fsencode(path), content) for path, content in files])

    def truncate(self, path: Path, size: int) -> None:
        """Sets the length of a file."""
        self._volume().truncate(os.fsencode(path), size)

    # Names.

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Makes a directory."""
        self._volume().mkdir(os.fsencode(path), mode)

    def makedirs(self, path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Makes a directory and those above it."""
        name = os.fsencode(path)
        if exist_ok:
            self._volume().makedirs(name, mode)
            return
        parent = os.path.dirname(name.rstrip(b"/"))
        if parent not in (b"", b"/"):
            self._volume().makedirs(parent, mode)
            if name.rstrip(b"/").endswith(b"/."):
                return
        # Of two that make it at once, one fails.
        self.mkdir(path, mode)

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self._volume().rmdir(os.fsencode(path))

    def unlink(self, path: Path) -> None:
        """Removes a file."""
        self._volume().unlink(os.fsencode(path))

    def remove(self, path: Path) -> None:
        """Removes a file."""
        self.unlink(path)

    def rmr(self, path: Path, skip_trash: bool = False) -> None:
        """Removes a file or a whole tree."""
        self._volume().remove_all(os.fsencode(path), skip_trash)

    def rename(self, old: Path, new: Path) -> None:
        """Moves a name; an existing new name is replaced."""
        self._volume().rename(os.fsencode(old), os.fsencode(new), 0)

    def rename_noreplace(self, old: Path, new: Path) -> None:
        """Moves a name; an existing new name is an error."""
        self._volume().rename(os.fsencode(old), os.fsencode(new), 1)

    def exchange(self, one: Path, other: Path) -> None:
        """Swaps two names."""
        self._volume().rename(os.fsencode(one), os.fsencode(other), 2)

    def link(self, src: Path, dst: Path) -> None:
        """Gives a file one more name."""
        self._volume().link(os.fsencode(src), os.fsencode(dst))

    def symlink(self, src: Path, dst: Path) -> None:
        """Makes a symbolic link `dst` to `src`."""
        self._volume().symlink(os.fsencode(src), os.fsencode(dst))

    def readlink(self, path: Path) -> str:
        """Target of a symbolic link."""
        return os.fsdecode(self._volume().readlink(os.fsencode(path)))

    @overload
    def listdir(self, path: Path, detail: Literal[False] = False) -> list[str]: ...
    @overload
    def listdir(self, path: Path, detail: Literal[True]) -> list[tuple[str, os.stat_result]]: ...
    def listdir(self, path: Path, detail: bool = False) -> Any:
        """The names of a directory, sorted; with `detail` also their attributes."""
        items = sorted(self._volume().listdir(os.fsencode(path)))
        if not detail:
            return [os.fsdecode(name) for name, _, _ in items]
        unknown = (0, 0, 0, 0, 0, 0, 0, 0)
        return [
            (os.fsdecode(name), stat_result(fields or (mode, *unknown))) for name, mode, fields in items
        ]

    def walk(
        self,
        top: Path,
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As `os.walk`."""
        here = os.fsdecode(top)
        try:
            items = sorted(self._volume().listdir(os.fsencode(here)))
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        dirs: list[str] = []
        files: list[str] = []
        links: set[str] = set()
        for raw, mode, _ in items:
            name = os.fsdecode(raw)
            if _stat.S_ISLNK(mode):
                links.add(name)
                if self.isdir(os.path.join(here, name)):
                    dirs.append(name)
                    continue
            (dirs if _stat.S_ISDIR(mode) else files).append(name)
        if topdown:
            yield here, dirs, files
        for name in dirs:
            if followlinks or name not in links:
                yield from self.walk(os.path.join(here, name), topdown, onerror, followlinks)
        if not topdown:
            yield here, dirs, files

    # Attributes.

    def stat(self, path: Path) -> os.stat_result:
        """Attributes of what a path leads to."""
        return stat_result(self._volume().stat(os.fsencode(path)))

    def lstat(self, path: Path) -> os.stat_result:
        """As `stat`, of a symbolic link itself."""
        return stat_result(self._volume().lstat(os.fsencode(path)))

    def exists(self, path: Path) -> bool:
        """Whether something is there that the user may see."""
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def isdir(self, path: Path) -> bool:
        """Whether a directory is there."""
        try:
            return _stat.S_ISDIR(self.stat(path).st_mode)
        except OSError:
            return False

    def access(self, path: Path, mode: int) -> bool:
        """Whether the user may do what `mode` says: `os.R_OK` and so on."""
        try:
            self._volume().access(os.fsencode(path), mode)
        except OSError:
            return False
        return True

    def chmod(self, path: Path, mode: int) -> None:
        """Sets the permission bits."""
        self._volume().chmod(os.fsencode(path), mode)

    def chown(self, path: Path, uid: int, gid: int, follow_symlinks: bool = True) -> None:
        """Sets the owner and the group; -1 leaves one as it is."""
        owner, group = (None if number == -1 else number for number in (uid, gid))
        self._volume().chown(os.fsencode(path), owner, group, follow_symlinks)

    def utime(
        self,
        path: Path,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of the last access and of the last change, in seconds or in nanoseconds;
        by default to now."""
        if times is not None:
            ns = (round(times[0] * 1e9), round(times[1] * 1e9))
        self._volume().utime(os.fsencode(path), ns, follow_symlinks)

    def getxattr(self, path: Path, name: str) -> bytes:
        """Value of an extended attribute."""
        return self._volume().getxattr(os.fsencode(path), os.fsencode(name))

    def setxattr(self, path: Path, name: str, value: bytes | str, flags: int = 0) -> None:
        """Sets an extended attribute; `os.XATTR_CREATE` and `os.XATTR_REPLACE` are flags."""
        self._volume().setxattr(os.fsencode(path), os.fsencode(name), os.fsencode(value), flags)

    def listxattr(self, path: Path) -> list[str]:
        """Names of the extended attributes."""
        return [os.fsdecode(name) for name in self._volume().listxattr(os.fsencode(path))]

    def removexattr(self, path: Path, name: str) -> None:
        """Removes an extended attribute."""
        self._volume().removexattr(os.fsencode(path), os.fsencode(name))

    def getacl(self, path: Path, default: bool = False) -> list[tuple[int, int, int]]:
        """The ACL, or that which children inherit, as tag, id and permissions of each entry. The
        tags are those of Linux: 1 owner, 2 user, 4 owning group, 8 group, 16 mask, 32 others."""
        return self._volume().getacl(os.fsencode(path), default)

    def setacl(
        self, path: Path, entries: Iterable[tuple[int, int, int]], default: bool = False
    ) -> None:
        """Sets an ACL; no entries remove it."""
        self._volume().setacl(os.fsencode(path), default, list(entries))

    # Trees.

    def clone(self, src: Path, dst: Path, preserve: bool = False) -> None:
        """Clones a file or a tree without a copy of data."""
        self._volume().clone(os.fsencode(src), os.fsencode(dst), preserve)

    def concat(self, dst: Path, srcs: Iterable[Path]) -> None:
        """Appends files to a file without a copy of data, and removes them."""
        self._volume().concat(os.fsencode(dst), [os.fsencode(src) for src in srcs])

    def summary(self, path: Path) -> dict[str, Any]:
        """What a tree holds."""
        length, size, files, dirs, denied = self._volume().summary(os.fsencode(path))
        name = os.fsdecode(path)
        kind = 2 if self.isdir(path) else 1
        return {
            "Path": name,
            "Type": kind,
            "Length": length,
            "Size": size,
            "Files": files,
            "Dirs": dirs,
            "Denied": denied,
        }

    def info(self, path: Path, recursive: bool = False, strict: bool = False) -> dict[str, Any]:
        """Inode and sums of a file or a tree."""
        known = self.stat(path)
        found = self.summary(path) if recursive else {"Length": known.st_size, "Path": os.fsdecode(path)}
        return {"Inode": known.st_ino, **found}

    def set_quota(
        self,
        path: Path,
        capacity: int = 0,
        inodes: int = 0,
        create: bool = False,
        strict: bool = False,
    ) -> dict[str, Any]:
        """Sets limits, for superusers. `path` is a directory, `uid:N` or `gid:N`.

        `capacity` is in bytes. 0 keeps the limit; `del_quota` removes it. `create` makes the
        directory. The first limits of a directory count what it holds; `strict` counts entry by
        entry."""
        owner = os.fsencode(path)
        if create and not owner.startswith((b"uid:", b"gid:")):
            self.makedirs(path, exist_ok=True)
        self._volume().set_quota(owner, (capacity or None, inodes or None), strict)
        return self.get_quota(path)

    def get_quota(self, path: Path) -> dict[str, Any]:
        """The quota of a directory, of `uid:N` or of `gid:N`, by that name; empty if there is none.

        A directory counts only the quota that it has itself."""
        quota = self._volume().quota(os.fsencode(path))
        return {} if quota is None else {os.fsdecode(path): _quota(quota)}

    def list_quota(self) -> dict[str, Any]:
        """All quotas that have limits, by name, for superusers."""
        return {os.fsdecode(name): _quota(quota) for name, quota in self._volume().quotas()}

    def del_quota(self, path: Path) -> None:
        """Removes the limits of a directory, of `uid:N` or of `gid:N`, for superusers."""
        self._volume().remove_quota(os.fsencode(path))

    def check_quota(self, path: Path, repair: bool = False, strict: bool = False) -> dict[str, Any]:
        """Counts again what a quota limits, for superusers. Returns the quota.

        Raises an OSError with EINVAL if the usage on record is wrong; `repair` corrects it."""
        quota, counted = self._volume().check_quota(os.fsencode(path), repair, strict)
        if quota[2:] != counted and not repair:
            message = f"on record are {quota[2:]} bytes and inodes, {counted} were counted"
            raise OSError(errno.EINVAL, message, os.fsdecode(path))
        return self.get_quota(path)

    def statvfs(self) -> dict[str, int]:
        """Sizes of the volume: bytes in all and in use, inodes in use and free."""
        return dict(zip(("total", "used", "inodes", "free_inodes"), self._volume().statfs()))

    def status(self) -> dict[str, Any]:
        """Name and sizes of the volume."""
        return {"Setting": {"Name": self._volume().name()}, "Sizes": self.statvfs()}

    def warmup(self, paths: Path | Iterable[Path], threads: int = 10) -> dict[str, int]:
        """Reads files and trees once, so that they are in the cache. Returns their number and
        bytes."""
        if isinstance(paths, (str, bytes, os.PathLike)):
            paths = [paths]
        files = size = 0
        buffer = bytearray(4 << 20)
        for path in paths:
            for name in self._files_below(os.fsdecode(path)):
                with self.open(name, "rb", buffering=0) as file:
                    while count := file.readinto(buffer):
                        size += count
                files += 1
        return {"FileCount": files, "TotalBytes": size}

    def _files_below(self, path: str) -> Iterator[str]:
        if not self.isdir(path):
            yield path
        for top, _, files in self.walk(path):
            for name in files:
                full = os.path.join(top, name)
                if _stat.S_ISREG(self.lstat(full).st_mode):
                    yield full


def _quota(fields: tuple[int, int, int, int]) -> dict[str, int]:
    return dict(zip(("MaxSpace", "MaxInodes", "UsedSpace", "UsedInodes"), fields))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
