"""Who calls."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterable


def fields(
    user: str | None,
    uid: int | None,
    gid: int | None,
    groups: Iterable[int | str] | None,
    superuser: bool | None,
    umask: int | None,
) -> tuple[int, int, list[int], bool, int]:
    """The user that a program names, or that of the process. Root is a superuser if nothing else
    is said and the process runs as root."""
    if user is not None:
        entry = pwd.getpwnam(user)
        own = (entry.pw_uid, entry.pw_gid, os.getgrouplist(user, entry.pw_gid), False)
    elif uid is not None:
        own = (uid, uid, [], False)
    else:
        own = (os.geteuid(), os.getegid(), os.getgroups(), os.geteuid() == 0)
    return (
        own[0] if uid is None else uid,
        own[1] if gid is None else gid,
        own[2] if groups is None else [_gid(group) for group in groups],
        own[3] if superuser is None else superuser,
        _umask() if umask is None else umask,
    )


def _gid(group: int | str) -> int:
    return group if isinstance(group, int) else grp.getgrnam(group).gr_gid


def _umask() -> int:
    # To ask the kernel is to change it, for all threads.
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
