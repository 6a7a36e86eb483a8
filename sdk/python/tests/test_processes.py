"""Processes: fork, spawn, and a loop that loads data in eight of them."""

import errno
import json
import multiprocessing
import os
import random
import shutil
import subprocess

import pytest

import sluice

FILES = 64
SIZE = 40_000


class Dataset:
    """Samples in files, as a program for training has them: made in the parent, read in workers."""

    def __init__(self, client, folder):
        self.client = client
        self.paths = [f"{folder}/{name}" for name in client.listdir(folder)]
        # Open before the workers begin, and read in all of them.
        self.index = client.open(self.paths[0], "rb")
        self.index.read(10)

    def __getitem__(self, number):
        with self.client.open(self.paths[number], "rb") as file:
            return file.read()

    def __getstate__(self):
        return {"client": self.client, "paths": self.paths, "index": None}


def sample(number):
    return random.Random(number).randbytes(SIZE)


def work(dataset, numbers, results, folder):
    """A worker: reads its samples, and writes that it did."""
    total = 0
    for number in numbers:
        assert dataset[number] == sample(number), number
        total += 1
    if dataset.index is not None:
        # The file of the parent is read on from where it was at the fork.
        assert dataset.index.read() == sample(0)[10:]
    with dataset.client.open(f"{folder}-done/{os.getpid()}", "w") as file:
        file.write(str(total))
    results.put(total)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_eight_workers_load_data(client, folder, method):
    client.write_files([(f"{folder}/{number:03}", sample(number)) for number in range(FILES)])
    client.mkdir(f"{folder}-done")
    dataset = Dataset(client, folder)
    context = multiprocessing.get_context(method)
    results = context.Queue()
    numbers = list(range(FILES))
    random.Random(7).shuffle(numbers)
    workers = [
        context.Process(target=work, args=(dataset, numbers[worker::8], results, folder))
        for worker in range(8)
    ]
    for worker in workers:
        worker.start()
    # The parent goes on with the same client meanwhile.
    for number in range(FILES):
        client.open(f"{folder}/{number:03}", "rb", buffering=0).close()
        client.open(f"{folder}-done/parent{number}", "wb").close()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert sum(results.get(timeout=10) for _ in workers) == FILES
    done = [name for name in client.listdir(f"{folder}-done") if not name.startswith("parent")]
    assert sum(int(content) for content in client.read_files(f"{folder}-done/{name}" for name in done)) == FILES
    client.rmr(f"{folder}-done")


def in_child(call):
    """Runs a call in a forked child; its result as text."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(call())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        said = file.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return said


def test_a_child_opens_anew(client, folder):
    path = f"{folder}/f"
    writer = client.open(path, "wb")
    writer.write(b"of the parent")
    # What the parent has not stored yet is not the child's to store.
    assert in_child(lambda: client.stat(path).st_size) == "0"
    assert "EBADF" in in_child(lambda: flushed(writer)) or str(errno.EBADF) in in_child(lambda: flushed(writer))
    writer.close()
    assert in_child(lambda: client.read_files([path])) == "[b'of the parent']"
    assert in_child(lambda: client.open(f"{folder}/of-child", "w").close()) == "None"
    assert client.exists(f"{folder}/of-child")
    # A child of a child.
    assert in_child(lambda: in_child(lambda: client.listdir(folder))) == repr(repr(["f", "of-child"]))


def flushed(writer):
    writer.flush()


def test_a_child_that_only_ends_harms_nothing(client, folder):
    with client.open(f"{folder}/f", "wb") as file:
        file.write(b"x" * 100)
        assert in_child(lambda: None) == "None"
        file.write(b"y" * 100)
    assert client.read_files([f"{folder}/f"]) == [b"x" * 100 + b"y" * 100]


def test_a_pool_of_processes(client, folder):
    client.write_files([(f"{folder}/{number}", sample(number)) for number in range(16)])
    with multiprocessing.get_context("fork").Pool(4) as pool:
        paths = [f"{folder}/{number}" for number in range(16)]
        assert pool.map(length, [(client, path) for path in paths]) == [SIZE] * 16
    assert isinstance(client, sluice.Client)


def sessions(client):
    """Clients of the volume that have a session, by the command `sluice`."""
    program = shutil.which("sluice")
    if program is None:
        pytest.skip("no program sluice")
    said = subprocess.run([program, "status", client._url], capture_output=True, text=True, check=True)
    return len(json.loads(said.stdout)["Sessions"])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_their_sessions(client, folder, method):
    before = sessions(client)
    context = multiprocessing.get_context(method)
    workers = [context.Process(target=client.listdir, args=(folder,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    other = sluice.Client("other", client._url, read_only=False, cache_size="65M")
    assert sessions(client) == before + 1
    del other
    assert sessions(client) == before


def length(what):
    client, path = what
    with client.open(path, "rb") as file:
        return len(file.read())
