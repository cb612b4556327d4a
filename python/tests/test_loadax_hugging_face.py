"""HuggingFaceDataset, and the error if the package datasets is not installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream.loadax import Batcher, DataLoader, HuggingFaceDataset


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'millstream\[huggingface\]'"):
        HuggingFaceDataset([1])
    with pytest.raises(ImportError, match="needs the package datasets"):
        HuggingFaceDataset.from_hub("mnist")


@pytest.fixture
def table() -> Any:
    datasets = pytest.importorskip("datasets")
    columns = {"x": [[k, k + 1] for k in range(10)], "label": list(range(10))}
    return datasets.Dataset.from_dict(columns)


def test_rows_are_numpy(table: Any) -> None:
    dataset = HuggingFaceDataset(table)
    assert len(dataset) == 10
    assert isinstance(dataset[3]["x"], np.ndarray)
    assert dataset[3]["x"].tolist() == [3, 4]
    assert dataset[-1]["label"] == 9
    assert dataset.get(10) is None
    assert len(dataset.dataset) == 10
    loader = DataLoader(Batcher.stack()).batch_size(4).workers(2).build(dataset)
    for _ in range(2):
        labels = [batch["label"].tolist() for batch in loader]
        assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_nodes(table: Any) -> None:
    parts = [HuggingFaceDataset(table).split_dataset_by_node(3, k) for k in range(3)]
    rows = [[int(row["label"]) for row in part] for part in parts]
    assert [label for part in rows for label in part] == list(range(10))
    assert [len(part) for part in rows] == [4, 3, 3]


def test_other_types_are_refused(table: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict({"train": table, "test": table})
    with pytest.raises(TypeError, match="Pass one of 'train', 'test'"):
        HuggingFaceDataset(both)
    with pytest.raises(TypeError, match="not IterableDataset"):
        HuggingFaceDataset(table.to_iterable_dataset())


def test_a_folder(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    table.to_csv(folder / "train.csv")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    dataset = HuggingFaceDataset.from_hub(str(folder), split="train")
    assert [int(row["label"]) for row in dataset] == list(range(10))
