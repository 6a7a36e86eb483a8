"""The native library of this process.

What must stay true: a child that was forked uses nothing of its parent's library. Threads do not
survive a fork, locks may be held by threads that are gone, and SQLite counts the locks of a
database file for the process and not for the child. So a child loads a copy of the library, which
has a memory of its own.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import threading
import weakref
from types import ModuleType
from typing import Any, Protocol


class _Closes(Protocol):
    def close(self) -> None: ...


#: How many forks lie between the first process and this one.
generation = 0
#: Held while the library is loaded, so that no process has two copies.
_loading = threading.RLock()
#: The library, and the generation that loaded it.
_loaded: tuple[int, ModuleType] | None = None
#: What has to be closed before the process ends: files first, as they need their clients.
_files: weakref.WeakSet[Any] = weakref.WeakSet()
_clients: weakref.WeakSet[Any] = weakref.WeakSet()
#: Whether they are closed at the end of the process; children that are forked inherit that.
_registered = False
#: The generation that did so for a child of multiprocessing, which ends without atexit.
_finalizes = -1


def native() -> Any:
    """The library of this process, loaded at its first use."""
    global _loaded
    with _loading:
        if _loaded is not None and _loaded[0] == generation:
            return _loaded[1]
        if _loaded is None:
            from . import _native as module
        else:
            module = _load_copy()
        _loaded = (generation, module)
        return module


def _load_copy() -> ModuleType:
    found = importlib.util.find_spec("sluice._native")
    if found is None or found.origin is None:
        raise ImportError("the library of sluice is gone: install the package again")
    # The same file would be the same library: the loader compares names and inodes.
    path, done = _copied(found.origin)
    try:
        loader = importlib.machinery.ExtensionFileLoader("sluice._native", path)
        spec = importlib.util.spec_from_file_location("sluice._native", path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        return module
    finally:
        done()


def _copied(origin: str) -> tuple[str, Any]:
    """A copy of a file, and what removes it. It is in memory, where the system allows that."""
    with open(origin, "rb") as source:
        size = os.fstat(source.fileno()).st_size
        try:
            copy = os.memfd_create("sluice-native")
            path = f"/proc/{os.getpid()}/fd/{copy}"

            def done() -> None:
                os.close(copy)

        except OSError:
            copy, path = tempfile.mkstemp(prefix="sluice-", suffix=".so")

            def done() -> None:
                os.close(copy)
                os.unlink(path)

        at = 0
        while at < size:
            at += os.sendfile(copy, source.fileno(), at, size - at)
        return path, done


def close_file_at_exit(file: _Closes) -> None:
    """Closes a file before the process ends, unless it is closed by then."""
    _files.add(file)


def close_client_at_exit(client: _Closes) -> None:
    """Closes a client before the process ends, after the files."""
    global _registered, _finalizes
    _clients.add(client)
    if not _registered:
        atexit.register(_close_all)
        _registered = True
    process = sys.modules.get("multiprocessing.process")
    if _finalizes != generation and process is not None and process.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, _close_all, exitpriority=10)
        _finalizes = generation


def _close_all() -> None:
    for opened in [*_copy(_files), *_copy(_clients)]:
        try:
            opened.close()
        except Exception as error:  # whatever it is, the others are closed, too
            print(f"sluice: not everything could be stored: {error}", file=sys.stderr)


def _copy(opened: weakref.WeakSet[Any]) -> list[Any]:
    while True:
        try:
            return list(opened)
        except RuntimeError:
            # Another thread has just added one.
            continue


def _after_fork() -> None:
    global generation, _loading
    generation += 1
    # A thread that is not in this process may hold it.
    _loading = threading.RLock()
    _files.clear()
    _clients.clear()


os.register_at_fork(after_in_child=_after_fork)
