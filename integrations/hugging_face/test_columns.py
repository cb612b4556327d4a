"""Numeric columns of Hugging Face data sets, read from Arrow without Python."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pyarrow as pa
import pytest
from datasets import (
    Array2D,
    Array3D,
    ClassLabel,
    Dataset,
    Features,
    List,
    Value,
    concatenate_datasets,
    load_from_disk,
)
from deliveries import check_source

COUNT = 61
FEATURES = Features(
    {
        "byte": Value("uint8"),
        "count": Value("int64"),
        "flag": Value("bool"),
        "half": Value("float16"),
        "label": ClassLabel(names=["cat", "dog", "owl"]),
        "matrix": Array2D((2, 3), "uint8"),
        "cube": Array3D((2, 2, 2), "float32"),
        "vector": List(Value("float32"), length=5),
        "nested": List(List(Value("int16"), length=2), length=3),
        "flags": List(Value("bool"), length=3),
        "wide": Value("float64"),
    }
)
DTYPES = {
    "byte": np.uint8,
    "count": np.int32,
    "flag": np.bool_,
    "half": np.float16,
    "label": np.int32,
    "matrix": np.uint8,
    "cube": np.float32,
    "vector": np.float32,
    "nested": np.int16,
    "flags": np.bool_,
    "wide": np.float32,
}


def row(i: int) -> dict[str, Any]:
    return {
        "byte": i % 256,
        "count": 1000 - i,
        "flag": i % 3 == 0,
        "half": i / 4,
        "label": i % 3,
        "matrix": (np.arange(6).reshape(2, 3) + i).astype(np.uint8),
        "cube": np.arange(8, dtype=np.float32).reshape(2, 2, 2) * i,
        "vector": [i + k / 8 for k in range(5)],
        "nested": [[i, -i], [k := 2 * i, -k], [3, i]],
        "flags": [i % 2 == 0, i % 5 == 0, True],
        "wide": i * 0.5,
    }


def on_disk(folder: Path, rows_per_chunk: int = 4, count: int = COUNT) -> Dataset:
    """A data set in a memory-mapped Arrow file of many record batches."""
    return Dataset.from_generator(
        lambda: map(row, range(count)),
        features=FEATURES,
        cache_dir=str(folder),
        writer_batch_size=rows_per_chunk,
    )


def in_memory(count: int = COUNT) -> Dataset:
    return Dataset.from_list([row(i) for i in range(count)], features=FEATURES)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    dataset = on_disk(tmp_path_factory.mktemp("arrow"))
    assert dataset.data.table["byte"].num_chunks > 10
    return dataset


def check(dataset: Dataset, ordering: Any = "shuffle") -> Any:
    source = ms.as_source(dataset, ordering=ordering)
    assert source.origin == ("Hugging Face Dataset read from Arrow, 11 numeric columns")
    check_source(source, [dataset[i] for i in range(len(dataset))], DTYPES)
    return source


@pytest.mark.parametrize("ordering", ["shuffle", "sequential"])
def test_a_file_of_many_chunks(disk: Dataset, ordering: str) -> None:
    check(disk, ordering)


def test_in_memory() -> None:
    check(in_memory())


def test_in_memory_of_many_chunks(disk: Dataset) -> None:
    table = pa.concat_tables([in_memory(20).data.table, in_memory(13).data.table] * 2)
    check(Dataset(pa.Table.from_batches(table.to_batches(max_chunksize=3))))


def test_a_saved_data_set(disk: Dataset, tmp_path: Path) -> None:
    disk.save_to_disk(tmp_path / "shards", num_shards=3)
    check(load_from_disk(tmp_path / "shards"))
    check(load_from_disk(tmp_path / "shards", keep_in_memory=True))


SELECTIONS: dict[str, Callable[[Dataset], Dataset]] = {
    "a range": lambda d: d.select(range(5, 40)),
    "a range in a range": lambda d: d.select(range(5, 40)).select(range(3, 20)),
    "rows": lambda d: d.select([3, 3, 60, 0, 17]),
    "reversed": lambda d: d.select(range(COUNT - 1, -1, -1)),
    "shuffled": lambda d: d.shuffle(seed=1),
    "a range of shuffled rows": lambda d: d.shuffle(seed=1).select(range(9, 30)),
    "filtered": lambda d: d.filter(lambda r: r["label"] != 1),
    "filtered to a range": lambda d: d.filter(lambda r: 970 <= r["count"] < 990),
    "training part": lambda d: d.train_test_split(0.3, seed=2)["train"],
    "test part": lambda d: d.train_test_split(0.3, seed=2)["test"],
    "a shard": lambda d: d.shard(3, 1, contiguous=False),
    "sorted": lambda d: d.sort("count"),
    "one row": lambda d: d.select([30]),
}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_selections(disk: Dataset, selection: str, place: str) -> None:
    dataset = disk if place == "disk" else in_memory()
    check(SELECTIONS[selection](dataset))


def test_contiguous_indices_are_a_slice(disk: Dataset) -> None:
    part = disk.filter(lambda r: 970 <= r["count"] < 990)
    assert part._indices is not None
    source = ms.as_source(part)
    whole = ms.as_source(disk)
    assert source._columns()[1] is None
    assert whole._columns()[1] is None
    assert source._columns()[0][0].chunks[0].rows < 4


def test_concatenated_rows(disk: Dataset, tmp_path: Path) -> None:
    other = on_disk(tmp_path, rows_per_chunk=9, count=20)
    check(concatenate_datasets([disk, other, in_memory(8)]))
    check(concatenate_datasets([disk.shuffle(seed=3), in_memory(8)]))


def test_concatenated_columns(disk: Dataset, tmp_path: Path) -> None:
    """The chunks of the columns have different borders."""
    left = disk.select_columns(list(DTYPES)[:5])
    right = on_disk(tmp_path, rows_per_chunk=9).select_columns(list(DTYPES)[5:])
    both = concatenate_datasets([left, right], axis=1)
    table = both.data.table
    assert table["byte"].num_chunks != table["vector"].num_chunks
    check(both)
    check(both.shuffle(seed=4))
    right = in_memory().select_columns(list(DTYPES)[5:])
    check(concatenate_datasets([left, right], axis=1))
    check(concatenate_datasets([right, left], axis=1).select(range(1, 50)))


def test_columns_that_are_shown(disk: Dataset) -> None:
    few = disk.with_format(None, columns=["vector", "label"])
    source = ms.as_source(few)
    assert "Arrow, 2 numeric columns" in str(source.origin)
    rows = [few[i] for i in range(len(few))]
    check_source(source, rows, {name: DTYPES[name] for name in ("vector", "label")})


def test_large_lists_and_tensors_of_one_row(tmp_path: Path) -> None:
    features = Features({"image": Array3D((64, 64, 3), "uint8"), "x": Value("int8")})
    generator = np.random.default_rng(0)

    def rows() -> Any:
        for i in range(30):
            image = generator.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            yield {"image": image, "x": i}

    dataset = Dataset.from_generator(
        rows, features=features, cache_dir=str(tmp_path), writer_batch_size=1
    )
    dtypes = {"image": np.uint8, "x": np.int8}
    check_source(ms.as_source(dataset), [dataset[i] for i in range(30)], dtypes)


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_pickles_and_copies(disk: Dataset, place: str) -> None:
    dataset = (disk if place == "disk" else in_memory()).shuffle(seed=5)
    source = ms.as_source(dataset)
    for other in (pickle.loads(pickle.dumps(source)), copy.deepcopy(source)):
        assert other.origin == source.origin
        assert other.order == source.order
        for i in (0, 30, COUNT - 1):
            assert jax.tree.all(jax.tree.map(np.array_equal, other[i], source[i]))
    part, _ = source.split(0.5, 0.5)
    assert len(pickle.loads(pickle.dumps(part))) == len(part)


def test_the_source_keeps_the_table(tmp_path: Path) -> None:
    source = ms.as_source(on_disk(tmp_path, count=10))
    memory = ms.as_source(in_memory(10))
    for i in range(10):
        assert source[i]["count"] == memory[i]["count"] == 1000 - i


def test_a_deleted_file_stays_readable(tmp_path: Path) -> None:
    dataset = on_disk(tmp_path, count=10)
    os.unlink(dataset.cache_files[0]["filename"])
    check(dataset)


def test_windows(disk: Dataset) -> None:
    source = ms.WindowSource(ms.as_source(disk, ordering="sequential"), 5, 3)
    assert source[2]["count"].tolist() == [1000 - i for i in range(6, 11)]


def test_integers_of_64_bits(tmp_path: Path) -> None:
    values = [2**40 if i == 7 else i for i in range(20)]
    memory = Dataset.from_dict({"x": values})
    for data in (memory, memory.select([5, 6, 7, 9])):
        loader = ms.DataLoader([data, ms.BatchTransform(20)])
        with pytest.raises(ms.DataError, match="int32 cannot hold, 1099511627776") as e:
            next(loader.iterate(loader.init_state(0)))
        assert (e.value.sample, e.value.field) == (7, "x")
    small = memory.filter(lambda r: r["x"] < 2**31)
    check_source(ms.as_source(small), [small[i] for i in range(19)], {"x": np.int32})
    memory.save_to_disk(tmp_path / "saved")
    loader = ms.DataLoader(
        [ms.as_source(load_from_disk(tmp_path / "saved")), ms.BatchTransform(20)]
    )
    with pytest.raises(ms.DataError, match="int32 cannot hold"):
        next(loader.iterate(loader.init_state(0)))


def test_pages_that_were_written_to(tmp_path: Path) -> None:
    """A private map has values that its file does not have."""
    np.save(tmp_path / "x.npy", np.arange(30, dtype=np.int32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[7] = -1
    source = ms.as_source(Dataset(pa.table({"x": pa.array(mapped)})))
    assert [source[i]["x"].item() for i in (6, 7, 8)] == [6, -1, 8]
