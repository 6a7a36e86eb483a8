"""The file system of fsspec: its own tests, all of them, and what they leave out."""

import pickle

import fsspec
import fsspec.tests.abstract as abstract
import pytest

from sluice.spec import SluiceFileSystem


@pytest.fixture(scope="module")
def whole(meta, options):
    return SluiceFileSystem("test", meta, auto_mkdir=True, **options)


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, whole):
        return whole

    @pytest.fixture
    def fs_path(self, folder):
        return folder


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


def test_protocols_are_known_without_an_import(meta, options, folder):
    for protocol in ["sluice", "jfs", "juicefs"]:
        with fsspec.open(f"{protocol}://{folder}/{protocol}", "w", meta=meta, **options) as file:
            file.write(protocol)
        found = fsspec.filesystem(protocol, meta=meta, **options)
        assert found.cat_file(f"{protocol}://{folder}/{protocol}") == protocol.encode()


def test_moves(whole, folder):
    whole.pipe_file(f"{folder}/a", b"a")
    whole.mv(f"{folder}/a", f"{folder}/b")
    whole.mkdir(f"{folder}/d")
    whole.mv(f"{folder}/b", f"{folder}/d/")
    assert whole.ls(f"{folder}/d", detail=False) == [f"{folder}/d/b"]
    whole.mv(f"{folder}/d", f"{folder}/e", recursive=True)
    assert whole.cat_file(f"{folder}/e/b") == b"a"
    with pytest.raises(FileNotFoundError):
        whole.mv(f"{folder}/absent", f"{folder}/x")


def test_ranges(whole, folder):
    content = bytes(range(256)) * 100
    whole.pipe({f"{folder}/f": content, f"{folder}/g": b"short"})
    got = whole.cat_ranges([f"{folder}/f", f"{folder}/f", f"{folder}/g", f"{folder}/absent"], [5, -5, None, 0], [9, None, 3, 1])
    assert got[:3] == [content[5:9], content[-5:], b"sho"]
    assert isinstance(got[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        whole.cat_ranges([f"{folder}/absent"], 0, 1, on_error="raise")
    assert whole.cat(f"{folder}/*") == {f"{folder}/f": content, f"{folder}/g": b"short"}
    assert whole.cat([f"{folder}/g"]) == {f"{folder}/g": b"short"}


def test_a_copy_shares_its_data(whole, folder):
    whole.pipe_file(f"{folder}/f", b"x" * (9 << 20))
    used = whole.client.statvfs()["used"]
    whole.cp_file(f"{folder}/f", f"{folder}/g")
    whole.cp_file(f"{folder}/f", f"{folder}/g")
    assert whole.cat_file(f"{folder}/g") == b"x" * (9 << 20)
    assert whole.client.stat(f"{folder}/g").st_ino != whole.client.stat(f"{folder}/f").st_ino
    assert whole.client.statvfs()["used"] >= used


def test_transactions(whole, folder):
    whole.pipe_file(f"{folder}/old", b"old")
    with whole.transaction:
        with whole.open(f"{folder}/new", "wb") as file:
            file.write(b"new")
        whole.pipe_file(f"{folder}/old", b"changed")
        assert not whole.exists(f"{folder}/new")
        assert whole.cat_file(f"{folder}/old") == b"old"
    assert whole.cat([f"{folder}/new", f"{folder}/old"]) == {f"{folder}/new": b"new", f"{folder}/old": b"changed"}
    with pytest.raises(RuntimeError):
        with whole.transaction:
            with whole.open(f"{folder}/never", "wb") as file:
                file.write(b"x")
            raise RuntimeError
    assert whole.ls(folder, detail=False) == [f"{folder}/new", f"{folder}/old"]


def test_listings_and_removal(whole, folder):
    whole.pipe({f"{folder}/a/b/c": b"1", f"{folder}/a/d": b"22"})
    assert whole.find(folder) == [f"{folder}/a/b/c", f"{folder}/a/d"]
    assert whole.du(folder) == 3
    assert whole.info(f"{folder}/a")["type"] == "directory"
    whole.symlink(f"{folder}/a/d", f"{folder}/link")
    assert whole.info(f"{folder}/link")["size"] == 2 and whole.islink(f"{folder}/link")
    with pytest.raises(ValueError):
        whole.rm(f"{folder}/a")
    whole.rm([f"{folder}/a/d", f"{folder}/link"])
    whole.rm(f"{folder}/a", recursive=True)
    assert whole.ls(folder) == []
    with pytest.raises(FileNotFoundError):
        whole.ls(f"{folder}/a")
    whole.touch(f"{folder}/t")
    assert whole.modified(f"{folder}/t") >= whole.created(f"{folder}/t").replace(year=2000)


def test_it_is_pickled(whole, folder):
    whole.pipe_file(f"{folder}/f", b"f")
    assert pickle.loads(pickle.dumps(whole)).cat_file(f"{folder}/f") == b"f"
