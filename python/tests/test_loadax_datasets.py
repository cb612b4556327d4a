"""Loadax's data sets, with `get` and with `__getitem__`."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from millstream.loadax import (
    Batcher,
    CombinedDataset,
    DataLoader,
    Dataloader,
    Dataset,
    DatasetIterator,
    FilteredDataset,
    InMemoryDataset,
    MappedBatchDataset,
    MappedDataset,
    PartialDataset,
    RangeDataset,
    SampledDataset,
    SampledDatasetWithoutReplacement,
    SampledDatasetWithReplacement,
    Shardable,
    ShardedDataset,
    Shuffleable,
    ShuffledDataset,
    SimpleDataset,
    compute_shard_boundaries,
)


def double(x: int) -> int:
    return 2 * x


def is_even(x: int) -> bool:
    return x % 2 == 0


class Squares(Dataset[int]):
    """A data set with `__getitem__`."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < 5:
            raise IndexError(index)
        return index * index


class Cubes(Dataset[int]):
    """A data set with `get`."""

    def __len__(self) -> int:
        return 4

    def get(self, index: int) -> int | None:
        return index**3 if 0 <= index < 4 else None


TEN = list(range(10))
SHUFFLED = list(ShuffledDataset(TEN, 3))

CASES: list[tuple[Dataset[Any], Sequence[Any]]] = [
    (InMemoryDataset(TEN), TEN),
    (InMemoryDataset(np.arange(10)), TEN),
    (InMemoryDataset(iter(TEN)), TEN),
    (SimpleDataset(["a", "b"]), ["a", "b"]),
    (RangeDataset(0, 10), TEN),
    (RangeDataset(-3, 8, 4), [-3, 1, 5]),
    (RangeDataset(0, 9, 4), [0, 4, 8]),
    (MappedDataset(TEN, double), [2 * x for x in TEN]),
    (RangeDataset(0, 10).map(double).map(str), [str(2 * x) for x in TEN]),
    (FilteredDataset(TEN, is_even), [0, 2, 4, 6, 8]),
    (RangeDataset(0, 10).filter(is_even), [0, 2, 4, 6, 8]),
    (MappedBatchDataset(TEN, sum, 4), [6, 22, 17]),
    (RangeDataset(0, 70).map_batch(len), [32, 32, 6]),
    (PartialDataset(TEN, 3, 6), [3, 4, 5]),
    (PartialDataset(TEN, 8, 99), [8, 9]),
    (CombinedDataset([TEN, [10, 11], [], [12]]), list(range(13))),
    (CombinedDataset([1, 2], [3]), [1, 2, 3]),
    (CombinedDataset(datasets=[RangeDataset(0, 2), [5]]), [0, 1, 5]),
    (CombinedDataset([[], TEN, []]), TEN),
    (CombinedDataset(RangeDataset(0, 2), RangeDataset(5, 7)), [0, 1, 5, 6]),
    (CombinedDataset([Squares(), Cubes()]), [0, 1, 4, 9, 16, 0, 1, 8, 27]),
    (ShuffledDataset(TEN, 3), SHUFFLED),
    (ShardedDataset(TEN, 3, 1), [3, 4, 5]),
    (ShardedDataset(TEN, 3, 0, drop_remainder=False), [0, 1, 2, 3]),
    (RangeDataset(0, 10).split_dataset_by_node(3, 2), [7, 8, 9]),
    (Squares(), [0, 1, 4, 9, 16]),
    (Cubes(), [0, 1, 8, 27]),
]


@pytest.mark.parametrize(("dataset", "items"), CASES, ids=lambda case: repr(case)[:40])
def test_both_protocols(dataset: Dataset[Any], items: Sequence[Any]) -> None:
    n = len(items)
    assert len(dataset) == n
    assert dataset.is_empty() == (n == 0)
    assert [dataset.get(i) for i in range(n)] == list(items)
    assert [dataset[i] for i in range(n)] == list(items)
    assert list(dataset) == list(items)
    assert list(iter(dataset)) == list(items)
    if not isinstance(dataset, Squares | Cubes):  # these have no negative indices
        assert [dataset[i - n] for i in range(n)] == list(items)
        assert [dataset.get(i - n) for i in range(n)] == list(items)
    for outside in (n, n + 1, 10**6, -n - 1, -n - 2, -(10**6)):
        assert dataset.get(outside) is None
        with pytest.raises(IndexError):
            dataset[outside]


def test_an_iterator_ends_and_does_not_rewind() -> None:
    walk = iter(RangeDataset(0, 3))
    assert isinstance(walk, DatasetIterator)
    assert next(walk) == 0
    assert list(iter(walk)) == [1, 2]
    assert list(walk) == []


def test_an_index_error_of_a_function_is_not_the_end_of_the_data() -> None:
    def fail(x: int) -> int:
        return [0][x]

    dataset = MappedDataset(TEN, fail)
    assert dataset.get(0) == 0
    with pytest.raises(IndexError, match="list index"):
        dataset.get(3)
    with pytest.raises(IndexError, match="list index"):
        list(dataset)


def test_map_passes_none_through() -> None:
    assert list(MappedDataset([1, None, 3], double)) == [2, None, 6]


def test_a_map_is_lazy() -> None:
    seen: list[int] = []
    dataset = MappedDataset(TEN, seen.append)
    assert seen == []
    dataset.get(4)
    assert seen == [4]


def test_a_filter_reads_every_item_once() -> None:
    seen: list[int] = []

    def odd(x: int) -> bool:
        seen.append(x)
        return x % 2 == 1

    dataset = FilteredDataset(TEN, odd)
    walk = iter(dataset)
    assert (next(walk), seen) == (1, [0, 1])
    assert len(dataset) == 5
    assert dataset[4] == 9
    assert seen == [0, 1, *TEN]


def test_a_filter_that_fails_names_the_item() -> None:
    dataset = FilteredDataset([1, 0, 2], lambda x: bool(1 / x))
    with pytest.raises(ZeroDivisionError) as raised:
        len(dataset)
    assert raised.value.__notes__ == ["The predicate raised this error for item 1."]


@pytest.mark.parametrize("n", [1, 2, 10, 128, 129, 1000])
def test_a_shuffle_has_every_item_once(n: int) -> None:
    items = list(ShuffledDataset(range(n), 5))
    assert sorted(items) == list(range(n))
    assert items == list(ShuffledDataset(range(n), 5))
    if n >= 10:
        assert items != list(range(n))
        assert items != list(ShuffledDataset(range(n), 6))
        assert items != list(ShuffledDataset(range(n), 5).at_epoch(1))
    assert sorted(ShuffledDataset(range(n), 5).at_epoch(1)) == list(range(n))


def test_a_shuffle_never_changes_between_versions() -> None:
    dataset = ShuffledDataset(range(1000), 7)
    assert [dataset[i] for i in range(5)] == [211, 426, 687, 842, 460]


def test_a_shuffle_of_many_items_needs_no_table() -> None:
    dataset = ShuffledDataset(range(10**15), jax.random.key(1))
    drawn = [dataset[i] for i in range(1000)]
    assert len(set(drawn)) == 1000
    assert dataset[-1] == dataset[10**15 - 1]
    assert max(drawn) > 9 * 10**14


def test_keys_of_every_kind() -> None:
    keys = (7, np.int64(7), jax.random.PRNGKey(7), jax.random.key(7))
    orders = [list(ShuffledDataset(range(50), key)) for key in keys]
    assert orders == [orders[0]] * 4
    assert list(ShuffledDataset(range(50))) == list(ShuffledDataset(range(50), 0))
    assert list(RangeDataset(0, 50).shuffle(7)) == orders[0]
    with pytest.raises(TypeError, match="a key is an int"):
        ShuffledDataset(TEN, "seven")
    with pytest.raises(TypeError, match="not traced"):
        jax.jit(lambda key: ShuffledDataset(TEN, key)[0])(jax.random.key(0))


def test_sampling_without_replacement() -> None:
    for kind in (SampledDatasetWithoutReplacement, SampledDataset):
        dataset = kind(range(1000), 300, jax.random.key(2))
        items = [dataset[i] for i in range(300)]
        assert len(dataset) == len(set(items)) == 300
        backwards = [dataset.get(i) for i in reversed(range(300))]
        assert backwards == items[::-1]
    with pytest.raises(ValueError, match="11 items cannot be drawn from 10"):
        SampledDatasetWithoutReplacement(TEN, 11, 0)
    with pytest.raises(ValueError, match="sample_size must be at least 0, not -1"):
        SampledDataset(TEN, -1, 0)
    assert list(SampledDataset([], 0, 0)) == []


def test_sampling_with_replacement() -> None:
    dataset = SampledDatasetWithReplacement(TEN, 2000, 4)
    items = list(dataset)
    assert [dataset.get(i) for i in reversed(range(2000))] == items[::-1]
    counts = Counter(items)
    assert set(counts) == set(TEN)
    assert all(130 < count < 270 for count in counts.values())
    assert list(dataset.at_epoch(0)) == items
    assert list(dataset.at_epoch(1)) != items
    with pytest.raises(
        ValueError, match="3 items cannot be drawn from an empty data set"
    ):
        SampledDatasetWithReplacement([], 3, 0)


def test_an_epoch_reaches_through_views() -> None:
    drawn = ShuffledDataset(TEN, 1)
    expected = [2 * x for x in drawn.at_epoch(3) if is_even(x)]
    view = CombinedDataset([drawn.filter(is_even).map(double), [100]])
    assert list(view.at_epoch(3)) == [*expected, 100]
    assert list(view) == [*(2 * x for x in drawn if is_even(x)), 100]
    plain = RangeDataset(0, 3).map(double)
    assert plain.at_epoch(5) is plain


def test_split() -> None:
    parts = PartialDataset.split(RangeDataset(0, 10), 4)
    assert [list(part) for part in parts] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert [len(part) for part in PartialDataset.split_dataset([1, 2], 4)] == [
        1,
        1,
        0,
        0,
    ]
    with pytest.raises(ValueError, match="n must be at least 1"):
        PartialDataset.split(TEN, 0)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (5, 4), (11, 12)])
def test_wrong_bounds_of_a_partial_dataset(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="start"):
        PartialDataset(TEN, start, end)


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("size", [0, 1, 7, 9, 100])
@pytest.mark.parametrize("shards", [1, 2, 3, 8])
def test_shard_boundaries(shards: int, size: int, drop: bool) -> None:
    bounds = [
        compute_shard_boundaries(shards, shard, size, drop_remainder=drop)
        for shard in range(shards)
    ]
    assert bounds[0][0] == 0
    assert [end for _, end in bounds[:-1]] == [start for start, _ in bounds[1:]]
    sizes = [end - start for start, end in bounds]
    if drop:
        assert set(sizes) == {size // shards}
    else:
        assert sum(sizes) == size
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


def test_bad_shards() -> None:
    with pytest.raises(ValueError, match="num_shards must be greater than 0, not 0"):
        compute_shard_boundaries(0, 0, 10)
    with pytest.raises(ValueError, match=r"shard_id 3 must be in the range \[0, 3\)"):
        ShardedDataset(TEN, 3, 3)
    with pytest.raises(TypeError, match="a data set must have a length"):
        ShardedDataset(iter(TEN), 3, 0)  # type: ignore[arg-type]
    assert ShardedDataset(TEN, 3, 2).shard_boundaries() == (6, 9)


def test_an_item_of_many_data_sets_is_found_by_bisection() -> None:
    parts = [RangeDataset(k, k + 1) for k in range(2000)]
    dataset = CombinedDataset(parts)
    assert (dataset[0], dataset[1234], dataset[-1]) == (0, 1234, 1999)
    assert len(CombinedDataset([])) == 0


class Counted(Dataset[int]):
    """Counts the calls of len()."""

    asked = 0

    def __len__(self) -> int:
        Counted.asked += 1
        return 2

    def __getitem__(self, index: int) -> int:
        return index


def test_combined_does_not_scan_its_data_sets() -> None:
    dataset = CombinedDataset([Counted() for _ in range(512)])
    Counted.asked = 0
    assert dataset[777] == 1
    assert Counted.asked <= 1


@pytest.mark.parametrize(
    ("build", "error", "text"),
    [
        (lambda: RangeDataset(3, 3), ValueError, "start must be less than end"),
        (
            lambda: RangeDataset(0, 3, 0),
            ValueError,
            "step must be greater than 0, not 0",
        ),
        (lambda: RangeDataset(0, 3, 1.5), TypeError, "step must be a whole number"),
        (lambda: InMemoryDataset({"a": 1}), TypeError, "not a dict"),
        (lambda: MappedDataset(3, double), TypeError, "found int"),
        (lambda: MappedDataset({"a": 1}, double), TypeError, "found dict"),
        (
            lambda: MappedDataset(TEN, 3),
            TypeError,
            "map_fn must be a function, not int",
        ),
        (lambda: RangeDataset(0, 3)[1.5], TypeError, "integer"),
        (lambda: RangeDataset(0, 3).map_batch(len, 0), ValueError, "batch_size"),
        (lambda: Dataset()[0], TypeError, "must define __len__"),
        (lambda: Half()[0], TypeError, r"Half must define get\(\) or"),
    ],
)
def test_bad_arguments(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


class Half(Dataset[int]):
    def __len__(self) -> int:
        return 1


class OnlyGet:
    """An object with `get` and a length, which is not a Dataset."""

    def __len__(self) -> int:
        return 3

    def get(self, index: int) -> int:
        return index + 1


class Twice(InMemoryDataset[int]):
    """Overrides `__getitem__` of a data set that has items of its own."""

    def __getitem__(self, index: int) -> int:
        return 2 * super().__getitem__(index)


class Negated(RangeDataset):
    """Overrides `get`."""

    def get(self, index: int) -> int | None:
        item = super().get(index)
        return None if item is None else -item


class TwicePartial(PartialDataset[int]):
    def __getitem__(self, index: int) -> int:
        return 2 * super().__getitem__(index)


@pytest.mark.parametrize(
    ("dataset", "items"),
    [
        (Twice(TEN), [2 * x for x in TEN]),
        (Negated(0, 10), [-x for x in TEN]),
        (TwicePartial(TEN, 0, 10), [2 * x for x in TEN]),
        (TwicePartial(Twice(TEN), 0, 10), [4 * x for x in TEN]),
    ],
    ids=["getitem", "get", "view", "both"],
)
def test_methods_of_a_subclass_are_called(
    dataset: Dataset[int], items: list[int]
) -> None:
    order = [int(k) for k in ShuffledDataset(TEN, 1)]
    assert list(Dataloader(dataset, 10)) == [items]
    assert list(Dataloader(dataset, 10, 2)) == [items]
    loader = DataLoader(Batcher.stack()).batch_size(10)
    (batch,) = loader.build(ShuffledDataset(dataset, 1))
    assert batch.tolist() == [items[k] for k in order]
    assert list(MappedDataset(dataset, double)) == [2 * x for x in items]
    assert list(ShuffledDataset(dataset, 1)) == [items[k] for k in order]
    assert list(CombinedDataset([dataset, dataset])) == items + items
    assert pickle.loads(pickle.dumps(dataset.map(double)))[3] == 2 * items[3]


def test_an_object_that_has_only_get() -> None:
    dataset: Dataset[int] = MappedDataset(OnlyGet(), double)  # type: ignore[arg-type]
    assert list(dataset) == [2, 4, 6]


@pytest.mark.parametrize(
    "dataset",
    [
        RangeDataset(0, 9),
        ShuffledDataset(RangeDataset(0, 200), 3).at_epoch(2).map(double),
        SampledDatasetWithReplacement(TEN, 20, 1),
        RangeDataset(0, 9).filter(is_even),
        CombinedDataset([TEN, [1]]),
        ShardedDataset(TEN, 2, 1),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_pickling(dataset: Dataset[int]) -> None:
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


LOOKED: list[int] = []


def looked(x: int) -> bool:
    LOOKED.append(x)
    return x > 7


def test_a_pickled_filter_does_not_read_again() -> None:
    dataset = FilteredDataset(TEN, looked)
    assert len(dataset) == 2
    LOOKED.clear()
    copy = pickle.loads(pickle.dumps(dataset))
    assert (len(copy), copy[1]) == (2, 9)
    assert LOOKED == []


def test_runtime_checkable_protocols() -> None:
    assert isinstance(RangeDataset(0, 3), Shuffleable)
    assert isinstance(RangeDataset(0, 3), Shardable)
    assert not isinstance([1], Shardable)
    assert repr(InMemoryDataset([1, 2, 3])) == "InMemoryDataset(items=[1, 2]...)"
    assert repr(RangeDataset(0, 3)) == "RangeDataset(start=0, end=3, step=1)"
