"""PolarsDataset and HuggingFaceDataset of Loadax with the real libraries."""

from __future__ import annotations

import pickle
from typing import Any

import datasets
import numpy as np
import polars as pl
import pytest
from millstream.loadax import (
    Batcher,
    DataLoader,
    HuggingFaceDataset,
    PolarsDataset,
    ShuffledDataset,
)

COLUMNS = {
    "x": [[k / 2, k, 1.0] for k in range(20)],
    "label": list(range(20)),
    "name": [f"row {k}" for k in range(20)],
}


@pytest.fixture
def frame() -> Any:
    return pl.DataFrame(COLUMNS)


def test_rows_of_a_frame(frame: Any) -> None:
    dataset = PolarsDataset(frame)
    assert len(dataset) == 20
    row = dataset[3]
    assert (row["label"], row["name"]) == (3, "row 3")
    np.testing.assert_array_equal(row["x"], [1.5, 3, 1])
    assert dataset[-1]["label"] == 19
    assert dataset.get(20) is None
    with pytest.raises(IndexError, match="out of range"):
        dataset[20]
    missing = PolarsDataset(pl.DataFrame({"a": [1, None]}))
    assert [row["a"] for row in missing] == [1, None]
    again = pickle.loads(pickle.dumps(dataset))
    assert [row["label"] for row in again] == list(range(20))


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_batches_of_a_frame(frame: Any, kind: str) -> None:
    dataset = ShuffledDataset(PolarsDataset(frame.drop("name")), 2)
    builder = DataLoader(Batcher.stack(), worker_kind=kind).batch_size(8).workers(2)
    loader = builder.build(dataset)
    labels = list(ShuffledDataset(range(20), 2))
    for _ in range(2):
        batches = list(loader)
        assert [len(batch["label"]) for batch in batches] == [8, 8, 4]
        assert np.concatenate([b["label"] for b in batches]).tolist() == labels
        x = np.concatenate([b["x"] for b in batches])
        assert x.tolist() == [COLUMNS["x"][k] for k in labels]
    loader.close()


def test_other_objects_than_frames(frame: Any) -> None:
    with pytest.raises(TypeError, match=r"not LazyFrame\. Pass frame\.collect\(\)"):
        PolarsDataset(frame.lazy())
    with pytest.raises(TypeError, match="not Series"):
        PolarsDataset(frame["label"])
    with pytest.raises(TypeError, match="not dict"):
        PolarsDataset(COLUMNS)


@pytest.mark.parametrize("batcher", [Batcher.stack(), Batcher(list)])
def test_hugging_face_rows(batcher: Any) -> None:
    table = datasets.Dataset.from_dict(COLUMNS)
    dataset = HuggingFaceDataset(table)
    assert dataset[3]["x"].tolist() == [1.5, 3.0, 1.0]
    assert dataset[3]["name"] == "row 3"
    assert len(dataset.dataset) == 20
    loader = DataLoader(batcher).batch_size(16).workers(2).build(dataset)
    first = next(iter(loader))
    if isinstance(first, dict):
        assert first["label"].tolist() == list(range(16))
        assert first["name"].tolist()[:2] == ["row 0", "row 1"]
    else:
        assert [row["name"] for row in first] == COLUMNS["name"][:16]
    shard = dataset.split_dataset_by_node(2, 1)
    assert [int(row["label"]) for row in shard] == list(range(10, 20))
