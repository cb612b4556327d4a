"""Batcher.stack: workers write items directly into the arrays of a batch."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import jax
import loadax_items
import numpy as np
import pytest
from millstream.loadax import (
    Batcher,
    DataLoader,
    FixedBatchStrategy,
    MappedDataset,
    NaiveDataLoader,
    RangeDataset,
    ShuffledDataset,
    SkippedItemWarning,
)


class Pair(NamedTuple):
    x: np.ndarray
    y: int


def pair(k: int) -> Pair:
    return Pair(np.full(3, k, np.float16), k)


def nested(k: int) -> dict[str, Any]:
    return {"a": [np.float32(k), (k, k / 2)], "b": np.arange(2) + k, "c": k % 2 == 0}


def number(k: int) -> int:
    return k


def same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("make", [pair, nested, number, loadax_items.rows])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_batches_as_np_stack(make: Any, workers: int) -> None:
    dataset = ShuffledDataset(MappedDataset(RangeDataset(0, 23), make), 1)
    builder = DataLoader(Batcher.stack()).batch_size(5).workers(workers)
    naive = NaiveDataLoader(dataset, Batcher.stack(), FixedBatchStrategy(5))
    for epoch in (0, 1):
        made = list(builder.build(dataset).at_epoch(epoch))
        expected = list(naive.at_epoch(epoch))
        assert len(made) == len(expected) == 5
        for one, other in zip(made, expected, strict=True):
            same(one, other)


def test_processes_write_the_same_arrays() -> None:
    dataset = MappedDataset(RangeDataset(0, 23), loadax_items.rows)
    builder = DataLoader(Batcher.stack(), worker_kind="process").batch_size(5)
    naive = NaiveDataLoader(dataset, Batcher.stack(), FixedBatchStrategy(5))
    loader = builder.workers(2).build(dataset)
    for _ in range(2):
        for one, other in zip(loader, naive, strict=True):
            same(one, other)
    loader.close()


def test_batches_may_be_kept_and_changed() -> None:
    loader = DataLoader(Batcher.stack()).batch_size(4).build(np.eye(40))
    kept = list(loader)
    for batch in kept:
        batch *= 2
    np.testing.assert_array_equal(np.concatenate(kept), 2 * np.eye(40))


@pytest.mark.parametrize(
    "items",
    [
        [np.zeros(3), np.zeros(3), np.zeros(4), np.zeros(4), np.ones(3)],
        [1, 2, 0.5, 4, 5],
        [1, 2, 1 << 70, 3, 4],
        ["a", "b", "c", "d", "e"],
        [{"x": 1}, {"x": 2}, {"y": 3}, {"y": 4}, {"x": 5}],
    ],
    ids=["shapes", "dtypes", "large", "strings", "structures"],
)
def test_items_that_do_not_fit_the_arrays(items: list[Any]) -> None:
    loader = DataLoader(Batcher.stack()).batch_size(2).workers(2).build(items)
    naive = NaiveDataLoader(items, Batcher.stack(), FixedBatchStrategy(2))
    for _ in range(2):
        for one, other in zip(loader, naive, strict=True):
            same(one, other)


def test_an_error_names_its_item() -> None:
    dataset = ShuffledDataset(RangeDataset(0, 8), 0)
    place = list(dataset).index(5)
    failing = dataset.map(loadax_items.fail_at_five)
    walk = iter(DataLoader(Batcher.stack()).batch_size(1).build(failing))
    for _ in range(place):
        next(walk)
    with pytest.raises(KeyError, match="no 5") as raised:
        next(walk)
    notes = raised.value.__notes__
    assert f"This error was raised for item {place} of the data set." in notes
    missing: list[Any] = [1, None, 3]
    with pytest.raises(ValueError, match="item 1 is None"):
        list(DataLoader(Batcher.stack()).batch_size(2).build(missing))
    skipping = DataLoader(Batcher.stack(), on_error="skip").batch_size(2)
    with pytest.warns(SkippedItemWarning, match="item 1 was left out"):
        (batch,) = skipping.build(missing)
    assert batch.tolist() == [1, 3]


def test_workers_write_the_items_of_one_batch_together() -> None:
    together = threading.Barrier(4, timeout=30)

    def meet(k: int) -> int:
        if k:  # item 0 is also loaded once to find the fields
            together.wait()
        return k

    dataset = MappedDataset(RangeDataset(0, 5), meet)
    loader = DataLoader(Batcher.stack()).batch_size(5).workers(5).build(dataset)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3, 4]


class Several:
    """A data set that reads several items at once, as PyTorch calls it."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.calls.append(len(indices))
        return [10 * index for index in indices]


@pytest.mark.parametrize("batcher", [Batcher.stack(), Batcher(np.stack)])
def test_several_items_at_once(batcher: Any) -> None:
    items = Several()
    dataset = MappedDataset(ShuffledDataset(items, 3), loadax_items.doubled)
    loader = DataLoader(batcher).batch_size(32).build(dataset)
    found = np.concatenate(list(loader)).tolist()
    assert found == [20 * k for k in ShuffledDataset(range(64), 3)]
    assert max(items.calls) > 1
    assert len(items.calls) < 64
