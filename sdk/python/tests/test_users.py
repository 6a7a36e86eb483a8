"""The table of users, through the client and through the kernel."""

import errno
import os
import pathlib
import subprocess
import sys

import pytest

USERS = {
    "super": {"uid": 0, "gid": 0, "groups": [], "superuser": True},
    "ann": {"uid": 1000, "gid": 100, "groups": []},
    "bob": {"uid": 1001, "gid": 101, "groups": []},
    "cay": {"uid": 1002, "gid": 102, "groups": [100]},
    "adm": {"uid": 1003, "gid": 103, "groups": [300], "superuser": True},
    "root": {"uid": 0, "gid": 0, "groups": [], "superuser": False},
}
TABLE = pathlib.Path(__file__).parents[2] / "users.txt"


def rows():
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            user, call, *arguments, result = line.split()
            yield line, user, call, arguments, result


def run(fs, call, arguments):
    """Runs a call on the client, or on the module os, and names its result."""
    path, *more = arguments
    try:
        match call:
            case "mkdir" | "chmod":
                getattr(fs, call)(path, int(more[0], 8))
            case "chown":
                fs.chown(path, int(more[0]), int(more[1]))
            case "write":
                content(fs, path, "ab" if exists(fs, path) else "wb").close()
            case "read":
                with content(fs, path, "rb") as file:
                    file.read()
            case "truncate":
                fs.truncate(path, int(more[0]))
            case "access":
                if not fs.access(path, int(more[0])):
                    return "EACCES"
            case "touch":
                fs.utime(path)
            case "list":
                fs.listdir(path)
            case "stat" | "link" | "unlink" | "rmdir" | "rename":
                getattr(fs, call)(path, *more)
            case _:
                raise AssertionError(call)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"


def content(fs, path, mode):
    return open(path, mode) if fs is os else fs.open(path, mode)


def exists(fs, path):
    try:
        fs.stat(path)
    except OSError:
        return False
    return True


def test_the_table_through_the_client(client):
    if client.exists("/d"):
        client.rmr("/d")
    users = {name: client.as_user(umask=0o022, **user) for name, user in USERS.items()}
    wrong = [
        f"{line}: {got}"
        for line, user, call, arguments, result in rows()
        if (got := run(users[user], call, arguments)) != result
    ]
    client.rmr("/d")
    assert wrong == []


KERNEL = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_users
top = sys.argv[2]
users = test_users.USERS
wrong = compared = 0
os.umask(0o022)
for line, user, call, arguments, result in test_users.rows():
    who = users[user]
    if user == "root" or (user == "adm" and result != "ok"):
        continue
    arguments = [top + word if word.startswith("/") else word for word in arguments]
    child = os.fork()
    if child == 0:
        if user != "adm":
            os.setgroups(who["groups"])
            os.setresgid(who["gid"], who["gid"], who["gid"])
            os.setresuid(who["uid"], who["uid"], who["uid"])
        got = test_users.run(os, call, arguments)
        if got != result:
            print(f"{line}: the kernel says {got}", flush=True)
        os._exit(got != result)
    _, status = os.waitpid(child, 0)
    wrong += status != 0
    compared += 1
print(compared, "compared")
sys.exit(wrong != 0 or compared < 60)
"""


def test_the_table_through_the_kernel(tmp_path):
    """On a mount of the volume if SLUICE_MOUNT names one, else on a local file system."""
    if os.geteuid() != 0:
        pytest.skip("only root can become others")
    tmp_path = pathlib.Path(os.environ.get("SLUICE_MOUNT", tmp_path))
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 1:
            folder.chmod(folder.stat().st_mode | 0o011)
    top = tmp_path / "kernel"
    top.mkdir(mode=0o755)
    done = subprocess.run(
        [sys.executable, "-c", KERNEL, str(pathlib.Path(__file__).parent), str(top)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_groups_by_name(client, folder):
    import grp

    group = grp.getgrall()[-1]
    path = f"{folder}/f"
    client.open(path, "w").close()
    client.chmod(path, 0o640)
    client.chown(path, 0, group.gr_gid)
    member = client.as_user(uid=4711, gid=4711, groups=[group.gr_name])
    assert member.access(path, os.R_OK) and not member.access(path, os.W_OK)
    assert not client.as_user(uid=4711, gid=4711).access(path, os.R_OK)
    with pytest.raises(KeyError):
        client.as_user("no such user")
