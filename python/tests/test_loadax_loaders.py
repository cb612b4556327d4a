"""Loadax's loaders: every iteration gives every item in order, and then ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Python
from millstream.loadax import (
    Batcher,
    BatchIterator,
    BatchStrategy,
    DataLoader,
    Dataloader,
    DataloaderBuilder,
    Dataset,
    DistributedDataLoader,
    FixedBatchStrategy,
    InMemoryDataset,
    MappedDataset,
    NaiveDataLoader,
    NaiveDataloader,
    NoShardingStrategy,
    Progress,
    RangeDataset,
    ShuffledDataset,
    SkippedItemWarning,
)

LISTS: Batcher[Any, list[Any]] = Batcher(list)


def naive(dataset: Any, size: int, **more: Any) -> Any:
    return NaiveDataLoader(dataset, LISTS, FixedBatchStrategy(size), **more)


def built(dataset: Any, size: int, **more: Any) -> Any:
    return DataLoader(LISTS, **more).batch_size(size).workers(3).build(dataset)


def direct(dataset: Any, size: int, **more: Any) -> Any:
    return DistributedDataLoader(
        dataset, LISTS, FixedBatchStrategy(size), 2, 1, NoShardingStrategy(), **more
    )


def listing(dataset: Any, size: int, **more: Any) -> Any:
    return Dataloader(dataset, size, **more)


def working(dataset: Any, size: int, **more: Any) -> Any:
    return Dataloader(dataset, size, 4, 2, **more)


def prefetching(dataset: Any, size: int, **more: Any) -> Any:
    return Dataloader(dataset, size, prefetch_factor=2, **more)


def named(dataset: Any, size: int, **more: Any) -> Any:
    return Dataloader(
        dataset=dataset,
        batcher=LISTS,
        strategy=FixedBatchStrategy(size),
        num_workers=2,
        prefetch_factor=1,
        sharding_strategy=NoShardingStrategy(),
        **more,
    )


LOADERS = [naive, built, direct, named, listing, working, prefetching]
each_loader = pytest.mark.parametrize("load", LOADERS)


def fail_at(index: int) -> Dataset[int]:
    def fail(x: int) -> int:
        if x == index:
            raise KeyError(f"no {x}")
        return x

    return MappedDataset(RangeDataset(0, 8), fail)


@each_loader
@pytest.mark.parametrize("n", [0, 1, 4, 5, 17])
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_every_epoch_has_every_item(load: Any, n: int, size: int) -> None:
    items = list(range(100, 100 + n))
    loader = load(InMemoryDataset(items), size)
    expected = [items[k : k + size] for k in range(0, n, size)]
    for _ in range(3):
        assert list(loader) == expected
    assert len(loader) == loader.num_batches() == len(expected)
    assert loader.num_items() == n


@each_loader
def test_drop_last(load: Any) -> None:
    loader = load(
        fail_at(7), 3, drop_last=True
    )  # items of a dropped batch are not loaded
    assert list(loader) == [[0, 1, 2], [3, 4, 5]]
    assert len(loader) == 2
    assert loader.num_items() == 6
    skipping = load(fail_at(1), 3, drop_last=True, on_error="skip")
    with pytest.warns(SkippedItemWarning):
        assert list(skipping) == [[0, 2, 3], [4, 5, 6]]


@each_loader
def test_several_iterators_at_once(load: Any) -> None:
    loader = load(RangeDataset(0, 10), 3)
    first, second = iter(loader), iter(loader)
    assert next(first) == [0, 1, 2]
    assert next(first) == [3, 4, 5]
    assert next(second) == [0, 1, 2]
    assert iter(first) is first  # it does not start again
    assert list(first) == [[6, 7, 8], [9]]
    assert list(second) == [[3, 4, 5], [6, 7, 8], [9]]
    assert list(first) == []


@each_loader
def test_progress_counts_returned_items(load: Any) -> None:
    walk = iter(load(RangeDataset(0, 16), 3))
    assert walk.progress() == Progress(items_processed=0, items_total=16)
    next(walk)
    next(walk)
    assert walk.progress() == Progress(6, 16)
    list(walk)
    assert walk.progress() == Progress(16, 16)


@each_loader
def test_an_error_is_raised_after_the_batches_before_it(load: Any) -> None:
    walk = iter(load(fail_at(5), 2))
    assert [next(walk), next(walk)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError, match="no 5") as raised:
        next(walk)
    assert any("5" in note for note in raised.value.__notes__)
    assert list(walk) == []


@each_loader
def test_items_are_left_out_on_request_only(load: Any) -> None:
    loader = load(fail_at(3), 2, on_error="skip")
    for _ in range(2):
        with pytest.warns(SkippedItemWarning, match="item 3 was left out: KeyError"):
            batches = list(loader)
        assert batches == [[0, 1], [2, 4], [5, 6], [7]]
    with pytest.raises(
        ValueError, match="on_error must be 'raise' or 'skip', not 'print'"
    ):
        load(fail_at(3), 2, on_error="print")


@pytest.mark.parametrize("load", [naive, built, direct])
def test_none_is_a_missing_item(load: Any) -> None:
    items = [1, None, 3]
    with pytest.raises(ValueError, match="item 1 is None"):
        list(load(items, 2))
    with pytest.warns(SkippedItemWarning, match="item 1 was left out: ValueError"):
        assert list(load(items, 2, on_error="skip")) == [[1, 3]]


def test_none_is_an_item_in_lists() -> None:
    assert list(listing([1, None, 3], 2)) == [[1, None], [3]]
    assert list(working([1, None, 3], 2)) == [[1, None], [3]]


@pytest.mark.parametrize(("size", "prefetch"), [(1, 1), (2, 1), (16, 1), (4, 3)])
def test_workers_overlap(size: int, prefetch: int) -> None:
    together = threading.Barrier(8, timeout=30)  # only eight threads at once pass it

    def meet(x: int) -> int:
        time.sleep(0.02)  # one worker takes several items at once if they are fast
        together.wait()
        return x

    dataset = MappedDataset(RangeDataset(0, 16), meet)
    loader = Dataloader(dataset, size, num_workers=8, prefetch_factor=prefetch)
    assert [x for batch in loader for x in batch] == list(range(16))
    builder = DataLoader(LISTS).batch_size(size).workers(8).prefetch(prefetch)
    assert [x for batch in builder.build(dataset) for x in batch] == list(range(16))


def test_at_most_as_many_items_at_once_as_workers() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def count(x: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return x

    dataset = MappedDataset(RangeDataset(0, 40), count)
    list(Dataloader(dataset, 4, num_workers=3, prefetch_factor=4))
    assert 1 <= most <= 3


def test_exactly_the_requested_batches_are_loaded_ahead() -> None:
    seen: list[int] = []
    reached = threading.Event()

    def note(x: int) -> int:
        seen.append(x)
        if x == 7:
            reached.set()
        return x

    loader = DataLoader(LISTS).batch_size(2).prefetch(3)
    walk = iter(loader.build(MappedDataset(RangeDataset(0, 100), note)))
    assert seen == []
    assert next(walk) == [0, 1]
    assert reached.wait(30)  # the three batches after it are loaded ahead
    assert max(seen) == 7
    walk.close()
    assert list(walk) == []


@pytest.mark.parametrize("load", [naive, listing])
def test_without_workers_nothing_is_loaded_ahead(load: Any) -> None:
    def thread(x: int) -> int:
        threads.append(threading.get_ident())
        return x

    threads: list[int] = []
    assert next(iter(load(MappedDataset(RangeDataset(0, 10), thread), 2))) == [0, 1]
    assert threads == [threading.get_ident()] * 2


def test_waiting_takes_no_cpu_time() -> None:
    def slow(x: int) -> int:
        time.sleep(0.4)
        return x

    loader = built(MappedDataset(RangeDataset(0, 1), slow), 1)
    before = time.thread_time()
    assert list(loader) == [[0]]
    assert time.thread_time() - before < 0.2  # CPU time


THREADS = """
import gc, os, time
from millstream.loadax import Batcher, DataLoader, RangeDataset, MappedDataset

def threads():
    return len(os.listdir("/proc/self/task"))

def fail(x):
    if x == 30:
        raise ValueError("thirty")
    return x

builder = DataLoader(Batcher(list)).batch_size(2).workers(4).prefetch(3)
loader = builder.build(RangeDataset(0, 50))
failing = builder.build(MappedDataset(RangeDataset(0, 50), fail))
list(loader)
before = threads()
errors = []
for _ in range(5):
    list(loader)
    walk = iter(loader)
    next(walk)
    del walk                      # in the middle of an epoch
    closed = iter(loader)
    next(closed)
    closed.close()
    try:
        list(failing)
    except ValueError as error:
        errors.append(error)      # and its traceback
gc.collect()
for _ in range(1000):
    if threads() <= before:
        break
    time.sleep(0.01)
assert threads() <= before, (before, threads())
kept = iter(loader)               # alive when the process ends
next(kept)
print("done")
"""


def test_threads_end(python: Python) -> None:
    assert python.run(THREADS) == "done\n"


def test_a_batch_that_cannot_be_made() -> None:
    def fail(items: list[int]) -> int:
        return 1 // (items[0] - 2)

    loader = DataLoader(Batcher(fail)).batch_size(2).build(RangeDataset(0, 6))
    walk = iter(loader)
    assert next(walk) == -1
    with pytest.raises(ZeroDivisionError) as raised:
        next(walk)
    assert raised.value.__notes__ == [
        "This error was raised for batch 1, which has 2 items."
    ]
    assert list(walk) == []


def test_a_device_is_used() -> None:
    device = jax.devices("cpu")[0]
    for place in (device, "cpu", jax.sharding.SingleDeviceSharding(device)):
        batcher = Batcher(lambda rows: {"x": np.stack(rows)}, place)
        (batch,) = DataLoader(batcher).batch_size(4).build([np.zeros(2)] * 4)
        assert isinstance(batch["x"], jax.Array)
        assert batch["x"].devices() == {device}
    with pytest.raises(ValueError, match="no platform 'abacus'"):
        Batcher(list, "abacus")


def test_stacking_pytrees() -> None:
    items = [{"x": np.full(3, k), "y": k} for k in range(4)]
    batches = list(DataLoader(Batcher.stack()).batch_size(3).build(items))
    assert batches[0]["x"].tolist() == [[0] * 3, [1] * 3, [2] * 3]
    assert batches[1]["y"].tolist() == [3]
    device = Batcher.stack("cpu").batch(items)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(device))


def test_epochs_of_a_shuffle() -> None:
    loader = built(ShuffledDataset(range(40), 1), 8)
    again = [list(loader.at_epoch(epoch)) for epoch in (0, 1, 1, 2)]
    assert again[0] == list(loader)
    assert again[1] == again[2]
    assert again[0] != again[1] != again[3]
    assert sorted(x for batch in again[1] for x in batch) == list(range(40))


class Pairs(BatchStrategy[int]):
    """A strategy whose batches end at an even number."""

    def __init__(self) -> None:
        self._items: list[int] = []

    def add(self, item: int) -> None:
        self._items.append(item)

    def batch(self, force: bool) -> list[int] | None:
        if not self._items or not (force or self._items[-1] % 2 == 0):
            return None
        taken, self._items = self._items, []
        return taken

    def clone(self) -> Pairs:
        return Pairs()


def test_a_custom_strategy() -> None:
    items, expected = [1, 3, 4, 6, 7], [[1, 3, 4], [6], [7]]
    loader = NaiveDataloader(items, LISTS, Pairs())
    workers = DistributedDataLoader(items, LISTS, Pairs(), 2, 2, NoShardingStrategy())
    for _ in range(2):
        assert list(iter(loader)) == expected
        assert list(iter(workers)) == expected
    with pytest.raises(TypeError, match="Pairs does not know how many batches"):
        len(loader)


def test_a_dataloader_of_a_batcher_loads_its_shard() -> None:
    given = (FixedBatchStrategy(2), 1, 2, NoShardingStrategy(), 1, 2)
    loader = Dataloader(range(8), Batcher(sum), *given)
    assert isinstance(loader, DistributedDataLoader)
    assert (loader.shard_id, loader.num_shards) == (1, 2)
    assert list(loader) == [9, 13]


def test_a_fixed_strategy_removes_the_items_it_returns() -> None:
    strategy: FixedBatchStrategy[int] = FixedBatchStrategy(2)
    strategy.add(1)
    assert strategy.batch(force=False) is None
    assert strategy.clone().batch(force=True) is None
    assert strategy.batch(force=True) == [1]
    assert strategy.batch(force=True) is None
    assert strategy.batch_size == 2


def test_types_of_iterators() -> None:
    loader = built(range(4), 2)
    assert isinstance(iter(loader), BatchIterator)
    assert isinstance(iter(loader), Iterator)
    assert DataloaderBuilder is DataLoader


def direct_with(**given: Any) -> Any:
    full: dict[str, Any] = {
        "num_workers": 1,
        "prefetch_factor": 1,
        "sharding_strategy": NoShardingStrategy(),
        **given,
    }
    return DistributedDataLoader([1], LISTS, FixedBatchStrategy(1), **full)


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: direct_with(num_workers=0), ValueError, "num_workers must be at leas"),
        (lambda: direct_with(num_workers=0), AssertionError, "num_workers must be"),
        (lambda: direct_with(prefetch_factor=0), ValueError, "prefetch_factor must be"),
        (
            lambda: direct_with(shard_id=0),
            ValueError,
            "Either both or neither of shard_id and num_s",
        ),
        (
            lambda: direct_with(num_shards=2),
            ValueError,
            "Either both or neither of shard_id and num",
        ),
        (
            lambda: direct_with(shard_id=2, num_shards=2),
            ValueError,
            r"shard_id 2 must be in the range \[0, 2\)",
        ),
        (
            lambda: direct_with(shard_id=0, num_shards=0),
            ValueError,
            "num_shards must be greater than 0",
        ),
        (
            lambda: direct_with(worker_kind="fork"),
            ValueError,
            "worker_kind must be 'thread'",
        ),
        (lambda: direct_with(sharding_strategy=3), TypeError, "not int"),
        (
            lambda: direct_with(remainder="wrap"),
            ValueError,
            "remainder must be 'drop' or",
        ),
        (
            lambda: direct_with(shard_id=0, num_shards=2, on_error="skip"),
            ValueError,
            "on_error='skip' cannot be combined with 2 shards",
        ),
        (
            lambda: DataLoader(list),
            TypeError,
            r"batcher must be a Batcher\(fn\), not type",
        ),
        (lambda: DataLoader(LISTS).batch_size(0), ValueError, "batch_size must be at"),
        (lambda: DataLoader(LISTS).workers(-1), ValueError, "workers must be at least"),
        (lambda: DataLoader(LISTS).prefetch(-1), ValueError, "prefetch must be at lea"),
        (lambda: DataLoader(LISTS).build(iter([1])), TypeError, "found list_iterator"),
        (
            lambda: Dataloader([1], 0),
            ValueError,
            "batch_size must be at least 1, not 0",
        ),
        (lambda: Dataloader([1], 2.0), TypeError, "batch_size must be a whole number"),
        (lambda: Dataloader([1], LISTS), TypeError, "missing .* 'strategy'"),
        (lambda: Dataloader([1], 2, shard_id=0), TypeError, "shard_id"),
        (lambda: Dataloader([1], 1, -1), ValueError, "num_workers must be at least 0"),
        (lambda: NaiveDataLoader([1], list, 2), TypeError, "batcher must be a Batcher"),
        (
            lambda: NaiveDataLoader([1], LISTS, 2),
            TypeError,
            "strategy must be a BatchStrat",
        ),
        (lambda: Batcher(3), TypeError, "batch_fn must be a function, not int"),
        (lambda: listing([1], 1).at_epoch(-1), ValueError, "epoch must be at least 0"),
    ],
)
def test_bad_arguments(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_the_builder_treats_0_workers_as_1() -> None:
    loader = DataLoader(LISTS).workers(0).prefetch(0).build(range(3))
    assert list(loader) == [[0], [1], [2]]


def test_batches_for_jax() -> None:
    loader = DataLoader(Batcher(jnp.stack)).batch_size(4).build(range(8))
    assert [int(batch.sum()) for batch in loader] == [6, 22]
