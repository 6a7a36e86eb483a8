"""The client, and its files as files of `io`."""

import errno
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
import time

import pytest

import sluice


def test_files_are_those_of_io(client, folder):
    path = f"{folder}/f"
    with client.open(path, "w", encoding="utf-8") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("first\nzweite Zeile ä\nlast")
    with client.open(path) as file:
        assert file.readline() == "first\n"
        assert list(file) == ["zweite Zeile ä\n", "last"]
    with client.open(path, "rb") as file:
        assert isinstance(file, io.BufferedReader)
        assert file.readline(3) == b"fir"
        file.seek(-4, os.SEEK_END)
        assert file.read() == b"last"
        assert file.tell() == client.stat(path).st_size
    with client.open(path, "ab") as file:
        assert file.tell() == client.stat(path).st_size
        file.write(b"!")
    with client.open(path, "r+b") as file:
        file.write(b"F")
        assert file.read(4) == b"irst"
        file.truncate(3)
    with client.open(path, "rb", buffering=0) as file:
        assert isinstance(file, io.RawIOBase) and isinstance(file, sluice.File)
        assert file.read() == b"Fir"
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with client.open(path, "w+b") as file:
        file.write(b"12345")
        file.seek(1)
        assert file.read(2) == b"23"


def test_modes_that_have_no_meaning_are_refused(client, folder):
    for mode in ["", "rw", "rbt", "rr", "q", "b", "U"]:
        with pytest.raises(ValueError):
            client.open(f"{folder}/f", mode)
    for arguments in [("rb", -1, "utf-8"), ("r", 0)]:
        with pytest.raises(ValueError):
            client.open(f"{folder}/f", *arguments)
    with pytest.raises(FileNotFoundError) as raised:
        client.open(f"{folder}/f", "r")
    assert raised.value.errno == errno.ENOENT and raised.value.filename == f"{folder}/f"
    client.open(f"{folder}/f", "x").close()
    with pytest.raises(FileExistsError):
        client.open(f"{folder}/f", "x")
    with pytest.raises(IsADirectoryError):
        client.open(folder, "rb")


def test_reads_go_into_the_buffer_of_the_caller(client, folder):
    content = os.urandom(5 << 20)
    client.write_files([(f"{folder}/f", content)])
    with client.open(f"{folder}/f", "rb", buffering=0) as file:
        buffer = bytearray(8 << 20)
        assert file.readinto(buffer) == len(content)
        assert buffer[: len(content)] == content
        assert file.readinto(buffer) == 0
        # Of other types, and a part of a buffer.
        numbers = memoryview(bytearray(1 << 20)).cast("I")
        assert file.readinto_at(4096, numbers) == 1 << 20
        assert numbers.tobytes() == content[4096 : 4096 + (1 << 20)]
        part = memoryview(buffer)[100:200]
        assert file.readinto_at(0, part) == 100 and part == content[:100]
        with pytest.raises((BufferError, TypeError, ValueError)):
            file.readinto_at(0, b"cannot be written")
        ranges = [(at * 77_777, 33_333) for at in range(60)] + [(len(content) - 5, 100), (0, 0)]
        assert file.read_ranges(ranges) == [content[at : at + size] for at, size in ranges]
        assert file.read_at(10, 20) == content[10:30]


def test_other_threads_run_while_one_waits(client, folder):
    client.write_files([(f"{folder}/f", os.urandom(32 << 20))])
    steps = 0
    done = threading.Event()

    def read():
        buffer = bytearray(32 << 20)
        with client.open(f"{folder}/f", "rb", buffering=0) as file:
            for _ in range(5):
                file.readinto_at(0, buffer)
        done.set()

    thread = threading.Thread(target=read)
    old = sys.getswitchinterval()
    # A thread that kept the lock could be asked for it only after this.
    sys.setswitchinterval(60)
    try:
        thread.start()
        while not done.is_set():
            steps += 1
            time.sleep(0)
    finally:
        sys.setswitchinterval(old)
    thread.join()
    assert steps > 5


def test_threads_share_a_client_and_a_file(client, folder):
    path = f"{folder}/log"
    with client.open(path, "ab", buffering=0) as file:
        def append(number):
            for _ in range(50):
                file._file().append(bytes([number]) * 10)
        threads = [threading.Thread(target=append, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with client.open(path, "rb") as file:
        content = file.read()
    assert sorted(content[at : at + 10] for at in range(0, 4000, 10)) == sorted(
        bytes([number]) * 10 for number in range(8) for _ in range(50)
    )


def test_names(client, folder):
    client.makedirs(f"{folder}/a/b/c")
    with pytest.raises(FileExistsError):
        client.makedirs(f"{folder}/a/b/c")
    client.makedirs(f"{folder}/a/b/c", exist_ok=True)
    client.open(f"{folder}/a/f", "w").close()
    client.link(f"{folder}/a/f", f"{folder}/a/g")
    client.symlink("b", f"{folder}/a/s")
    assert client.readlink(f"{folder}/a/s") == "b"
    assert client.listdir(f"{folder}/a") == ["b", "f", "g", "s"]
    found = dict(client.listdir(f"{folder}/a", detail=True))
    assert stat.S_ISLNK(found["s"].st_mode) and found["f"].st_nlink == 2
    assert list(client.walk(f"{folder}/a")) == [
        (f"{folder}/a", ["b", "s"], ["f", "g"]),
        (f"{folder}/a/b", ["c"], []),
        (f"{folder}/a/b/c", [], []),
    ]
    assert [top for top, _, _ in client.walk(f"{folder}/a", topdown=False)][-1] == f"{folder}/a"
    with pytest.raises(FileExistsError):
        client.rename_noreplace(f"{folder}/a/f", f"{folder}/a/g")
    client.rename(f"{folder}/a/f", f"{folder}/a/h")
    client.exchange(f"{folder}/a/h", f"{folder}/a/s")
    assert client.readlink(f"{folder}/a/h") == "b"
    with pytest.raises(OSError) as raised:
        client.rmdir(f"{folder}/a")
    assert raised.value.errno == errno.ENOTEMPTY
    client.remove(f"{folder}/a/g")
    client.clone(f"{folder}/a", f"{folder}/copy")
    assert client.summary(f"{folder}/copy")["Dirs"] == 3
    client.rmr(f"{folder}/a")
    assert not client.exists(f"{folder}/a")
    name = b"not utf-8 \xff"
    client.mkdir(folder.encode() + b"/" + name)
    assert os.fsencode(client.listdir(folder)[-1]) == name


def test_attributes(client, folder):
    path = f"{folder}/f"
    with client.open(path, "wb") as file:
        file.write(b"x" * 5000)
    client.chmod(path, 0o640)
    client.chown(path, 1000, -1)
    client.utime(path, (1.5, 2.25))
    found = client.stat(path)
    assert (found.st_mode, found.st_uid, found.st_gid, found.st_size) == (0o100640, 1000, 0, 5000)
    assert (found.st_atime, found.st_mtime, found.st_mtime_ns) == (1.5, 2.25, 2_250_000_000)
    assert found.st_mtime != found.st_ctime and found.st_blocks == 16
    client.utime(path)
    assert client.stat(path).st_mtime > 1e9
    client.truncate(path, 7)
    assert client.stat(path).st_size == 7
    client.setxattr(path, "user.a", b"value")
    with pytest.raises(FileExistsError):
        client.setxattr(path, "user.a", b"", os.XATTR_CREATE)
    assert (client.getxattr(path, "user.a"), client.listxattr(path)) == (b"value", ["user.a"])
    client.removexattr(path, "user.a")
    with pytest.raises(OSError) as raised:
        client.getxattr(path, "user.a")
    assert raised.value.errno == errno.ENODATA
    acl = [(1, 0, 6), (2, 1001, 4), (4, 0, 0), (16, 0, 4), (32, 0, 0)]
    client.setacl(path, acl)
    assert client.getacl(path) == acl
    assert client.as_user(uid=1001).access(path, os.R_OK)
    client.setacl(path, [])
    assert not client.as_user(uid=1001).access(path, os.R_OK)
    assert client.info(path)["Length"] == 7
    assert client.statvfs()["inodes"] > 0
    assert json.dumps(client.status())


def test_quotas(client, folder):
    inner = f"{folder}/limited"
    assert client.get_quota(folder) == {} == client.get_quota("uid:1001")
    with pytest.raises(OSError) as raised:
        client.set_quota(folder)
    assert raised.value.errno == errno.EINVAL
    quota = client.set_quota(inner, capacity=1 << 20, inodes=3, create=True)[inner]
    assert quota == {"MaxSpace": 1 << 20, "MaxInodes": 3, "UsedSpace": 0, "UsedInodes": 0}
    for name in ("a", "b"):
        with client.open(f"{inner}/{name}", "wb") as file:
            file.write(b"x" * 5000)
    client.mkdir(f"{inner}/c")
    with pytest.raises(OSError) as raised:
        client.mkdir(f"{inner}/d")
    assert raised.value.errno == errno.EDQUOT
    checked = client.check_quota(inner, strict=True)[inner]
    assert (checked["UsedSpace"], checked["UsedInodes"]) == (2 * 8192 + 4096, 3)
    # 0 keeps a limit.
    assert client.set_quota(inner, inodes=10)[inner]["MaxSpace"] == 1 << 20
    assert client.list_quota()[inner]["MaxInodes"] == 10
    user = client.as_user(uid=1001)
    for forbidden in (user.list_quota, lambda: user.del_quota(inner), lambda: user.get_quota("uid:7")):
        with pytest.raises(PermissionError):
            forbidden()
    assert user.get_quota(inner)[inner]["MaxInodes"] == 10
    client.del_quota(inner)
    assert client.get_quota(inner) == {} and inner not in client.list_quota()
    with pytest.raises(ValueError):
        client.get_quota("uid:x")


def test_concat_and_warmup(client, folder):
    client.write_files([(f"{folder}/{name}", name.encode() * 1000) for name in "abc"])
    client.concat(f"{folder}/a", [f"{folder}/b", f"{folder}/c"])
    assert client.read_files([f"{folder}/a", (f"{folder}/a", -1, None), f"{folder}/b"])[:2] == [
        b"a" * 1000 + b"b" * 1000 + b"c" * 1000,
        b"c",
    ]
    (missing,) = client.read_files([f"{folder}/b"])
    assert isinstance(missing, FileNotFoundError)
    assert client.warmup(folder) == {"FileCount": 1, "TotalBytes": 3000}


def test_a_client_is_pickled_as_its_options(client, folder):
    client.write_files([(f"{folder}/f", b"0123456789")])
    other = pickle.loads(pickle.dumps(client))
    assert other.listdir(folder) == ["f"]
    with other.open(f"{folder}/f", "rb", buffering=0) as file:
        file.seek(3)
        assert pickle.loads(pickle.dumps(file)).read() == b"3456789"
    other.close()
    with pytest.raises(ValueError):
        other.listdir(folder)
    assert client.listdir(folder) == ["f"]


def test_options_are_checked(meta):
    with pytest.raises(TypeError):
        sluice.Client("x", meta, no_such_option=1)
    with pytest.raises(OSError) as raised:
        sluice.Client("x", meta, cache_size="large")
    assert raised.value.errno == errno.EINVAL and "cache_size=large" in str(raised.value)
    with pytest.warns(UserWarning, match="push_gateway"):
        sluice.Client("x", meta, push_gateway="http://x").close()
    with pytest.raises(OSError):
        sluice.Client("x", "nonsense://")


def test_what_a_program_leaves_open_is_stored_at_its_end(client, folder, meta, options):
    program = f"""
import sluice
client = sluice.Client("test", {meta!r}, **{options!r})
file = client.open("{folder}/left", "w")
file.write("open")
other = client.open("{folder}/other", "wb")
other.write(b"x" * 3000000)
"""
    before = client.statvfs()
    subprocess.run([sys.executable, "-c", program], check=True)
    assert client.read_files([f"{folder}/left"]) == [b"open"]
    assert client.stat(f"{folder}/other").st_size == 3_000_000
    assert before
