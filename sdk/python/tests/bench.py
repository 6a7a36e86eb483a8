"""Measures the client, or the same loops on a folder such as a mount.

    python3 bench.py write|read|small|many META-URL-OR-FOLDER [NUMBER]

Prints one JSON object. `write` and `read` move NUMBER MiB of one file (by default 1024), `small`
writes NUMBER files of 4 KiB one by one and lists them with their attributes (by default 1000),
`many` does so with the calls for many files.
"""

import json
import os
import sys
import time

BLOCK = 4 << 20


class Folder:
    """The calls of the client on a folder."""

    def __init__(self, path: str):
        self.path = path

    def open(self, path, mode, buffering=-1):
        return open(self.path + path, mode, buffering)

    def makedirs(self, path):
        os.makedirs(self.path + path, exist_ok=True)

    def listdir(self, path, detail):
        with os.scandir(self.path + path) as entries:
            return [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]


def opened(where: str):
    if "://" not in where:
        return Folder(where)
    import sluice

    options = dict(pair.split("=", 1) for pair in os.environ.get("OPTIONS", "").split() if pair)
    return sluice.Client("bench", where, **options)


def main() -> None:
    what, where, *more = sys.argv[1:]
    fs = opened(where)
    number = int(more[0]) if more else 1024 if what in ("read", "write") else 1000
    result = {}
    if what == "write":
        block = os.urandom(BLOCK)
        begin = time.monotonic()
        with fs.open("/big", "wb", buffering=0) as file:
            for _ in range(number // 4):
                file.write(block)
        result["MiB/s"] = number / (time.monotonic() - begin)
    elif what == "read":
        buffer = bytearray(BLOCK)
        total = 0
        cpu = time.process_time()
        begin = time.monotonic()
        with fs.open("/big", "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
        assert total == number << 20, total
        result["MiB/s"] = number / (time.monotonic() - begin)
        result["CPU s"] = time.process_time() - cpu
    else:
        folder = f"/small-{os.getpid()}"
        fs.makedirs(folder)
        content = os.urandom(4096)
        begin = time.monotonic()
        if what == "small":
            for at in range(number):
                with fs.open(f"{folder}/{at}", "wb") as file:
                    file.write(content)
        else:
            fs.write_files([(f"{folder}/{at}", content) for at in range(number)])
        written = time.monotonic()
        found = fs.listdir(folder, detail=True)
        assert len(found) == number and all(stat.st_size == 4096 for _, stat in found)
        end = time.monotonic()
        result = {"files/s": number / (written - begin), "list ms": (end - written) * 1e3, "all s": end - begin}
    print(json.dumps({name: round(value, 2) for name, value in result.items()}))


if __name__ == "__main__":
    main()
