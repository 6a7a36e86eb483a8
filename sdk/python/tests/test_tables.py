"""Tables of pandas and pyarrow through fsspec."""

import pytest

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")


def test_parquet_of_pandas(meta, options, folder):
    storage = {"meta": meta, "auto_mkdir": True, **options}
    table = pandas.DataFrame({"number": range(10_000), "text": [f"row {row}" for row in range(10_000)]})
    table.to_parquet(f"sluice://{folder}/t/one.parquet", storage_options=storage)
    back = pandas.read_parquet(f"sluice://{folder}/t/one.parquet", storage_options=storage)
    assert back.equals(table)
    table.to_csv(f"jfs://{folder}/one.csv", index=False, storage_options=storage)
    assert pandas.read_csv(f"jfs://{folder}/one.csv", storage_options=storage).equals(table)


def test_datasets_of_pyarrow(meta, options, folder):
    import pyarrow.dataset
    import pyarrow.fs

    from sluice.spec import SluiceFileSystem

    volume = SluiceFileSystem("test", meta, **options)
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(volume))
    table = pyarrow.table({"key": [1, 1, 2, 3], "value": ["a", "b", "c", "d"]})
    pyarrow.dataset.write_dataset(
        table,
        f"{folder}/set",
        filesystem=arrow,
        format="parquet",
        partitioning=["key"],
        partitioning_flavor="hive",
    )
    found = pyarrow.dataset.dataset(f"{folder}/set", filesystem=arrow, partitioning="hive")
    assert found.to_table(filter=pyarrow.dataset.field("key") == 1).column("value").to_pylist() == ["a", "b"]
