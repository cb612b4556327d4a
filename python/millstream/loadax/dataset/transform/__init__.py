"""Views of data sets: mapped, filtered, sliced, combined, sharded and shuffled."""

from __future__ import annotations

import copy
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Self, cast, overload

import numpy as np

from millstream._core.arguments import function, renamed
from millstream._order.drawn import drawn_samples
from millstream.loadax import _arguments as check
from millstream.loadax._types import T, U
from millstream.loadax.dataset.protocol import (
    Dataset,
    Indexed,
    Subset,
    View,
    dataset_of,
)

_LOCK = threading.RLock()  # for the lists of items that pass a filter


class MappedDataset(View[T]):
    """``map_fn(item)`` for every item, computed on each access.

    An item that is None stays None.
    """

    @renamed(transform="map_fn")
    def __init__(self, dataset: Indexed[U], map_fn: Callable[[U], T]) -> None:
        super().__init__(dataset)
        self.map_fn: Callable[[Any], Any] = function("map_fn", map_fn)

    def _mapped(self, item: Any) -> T:
        return cast(T, None) if item is None else self.map_fn(item)

    def _item(self, index: int) -> T:
        return self._mapped(self.dataset._items([index])[0])

    def _items(self, indices: list[int]) -> list[T]:
        return [self._mapped(item) for item in self.dataset._items(indices)]


class MappedBatchDataset(View[T]):
    """``fn(items)`` for every ``batch_size`` items; the last call may get fewer."""

    @renamed(transform="fn")
    def __init__(
        self, dataset: Indexed[U], fn: Callable[[list[U]], T], batch_size: int = 32
    ) -> None:
        super().__init__(dataset)
        self.fn: Callable[[list[Any]], T] = function("fn", fn)
        self.batch_size = check.whole("batch_size", batch_size, 1)

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def _item(self, index: int) -> T:
        first = index * self.batch_size
        end = min(first + self.batch_size, len(self.dataset))
        return self.fn(self.dataset._items(list(range(first, end))))


class FilteredDataset(Subset[T]):
    """The items for which ``predicate(item)`` is true, in order.

    The first use of ``len()`` or of an index reads every item once and stores the
    indices of those that pass. A plain loop reads items as it goes.
    """

    def __init__(self, dataset: Indexed[T], predicate: Callable[[T], bool]) -> None:
        super().__init__(dataset)
        self.predicate = function("predicate", predicate)
        self._passing: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._indices())

    def _at(self, indices: np.ndarray) -> np.ndarray:
        return self._indices()[indices]

    def __iter__(self) -> Iterator[T]:
        for index in range(len(self.dataset)):
            item = self.dataset[index]
            if self._passes(index, item):
                yield item

    def _indices(self) -> np.ndarray:
        with _LOCK:
            if self._passing is None:
                count = range(len(self.dataset))
                passing = (i for i in count if self._passes(i, self.dataset[i]))
                self._passing = np.fromiter(passing, np.int64)
            return self._passing

    def _passes(self, index: int, item: T) -> bool:
        try:
            return bool(self.predicate(item))
        except Exception as error:
            error.add_note(f"The predicate raised this error for item {index}.")
            raise

    def at_epoch(self, epoch: int) -> Self:
        inner = self.dataset.at_epoch(epoch)
        return self if inner is self.dataset else type(self)(inner, self.predicate)


class PartialDataset(Subset[T]):
    """The items from ``start`` up to but not including ``end``.

    An ``end`` after the last item means the end of the data set.
    """

    @renamed(start_index="start", end_index="end")
    def __init__(self, dataset: Indexed[T], start: int, end: int) -> None:
        super().__init__(dataset)
        count = len(self.dataset)
        if not 0 <= start <= min(check.whole("end", end, 0), count):
            raise check.ArgumentError(
                f"Invalid start or end index: start {start} and end {end} do not fit "
                f"{count} items. Expected 0 <= start <= end and start <= {count}"
            )
        self.start, self.end = check.whole("start", start, 0), min(end, count)

    def __len__(self) -> int:
        return self.end - self.start

    def _at(self, indices: np.ndarray) -> np.ndarray:
        return indices + self.start

    @staticmethod
    @renamed(num_parts="n", num_partitions="n")
    def split(dataset: Indexed[T], n: int) -> list[PartialDataset[T]]:
        """Splits a data set into ``n`` contiguous data sets.

        If the items do not divide evenly, the first ones have one item more.
        """
        inner, numbers = dataset_of(dataset), range(check.whole("n", n, 1))
        return [ShardedDataset(inner, n, k, drop_remainder=False) for k in numbers]

    split_dataset = split


def compute_shard_boundaries(
    num_shards: int, shard_id: int, dataset_size: int, *, drop_remainder: bool = True
) -> tuple[int, int]:
    """The start and the end of a contiguous shard.

    With ``drop_remainder`` all shards have the same size, and the last items of the
    data set belong to none. Otherwise the first shards have one item more.
    """
    shards, shard = check.shard_of(num_shards, shard_id)
    size, remainder = divmod(check.whole("dataset_size", dataset_size, 0), shards)
    if drop_remainder:
        return shard * size, (shard + 1) * size
    first = shard * size + min(shard, remainder)
    return first, first + size + (shard < remainder)


class ShardedDataset(PartialDataset[T]):
    """The items of the contiguous shard ``shard_id`` of ``num_shards``."""

    def __init__(
        self,
        dataset: Indexed[T],
        num_shards: int,
        shard_id: int,
        *,
        drop_remainder: bool = True,
    ) -> None:
        inner = dataset_of(dataset)
        bounds = compute_shard_boundaries(
            num_shards, shard_id, len(inner), drop_remainder=drop_remainder
        )
        super().__init__(inner, *bounds)
        self.num_shards, self.shard_id = num_shards, shard_id
        self.drop_remainder = drop_remainder

    def shard_boundaries(self) -> tuple[int, int]:
        """The start and the end of the shard in the data set."""
        return self.start, self.end


class CombinedDataset(Dataset[T]):
    """The items of several data sets, one data set after another.

    Pass the data sets as a list or as separate arguments.
    """

    @overload
    def __init__(self, datasets: Sequence[Indexed[T]]) -> None: ...

    @overload
    def __init__(
        self, first: Indexed[T], second: Indexed[T], /, *more: Indexed[T]
    ) -> None: ...

    def __init__(self, *given: Any, datasets: Any = ()) -> None:
        if len(given) == 1 and not isinstance(given[0], Dataset):
            (datasets,), given = given, ()
        self.datasets = [dataset_of(dataset) for dataset in (*given, *datasets)]
        self._firsts = [0, *accumulate(len(dataset) for dataset in self.datasets)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def _item(self, index: int) -> T:
        number = bisect_right(self._firsts, index) - 1
        item: T = self.datasets[number]._items([index - self._firsts[number]])[0]
        return item

    def at_epoch(self, epoch: int) -> CombinedDataset[T]:
        return CombinedDataset([dataset.at_epoch(epoch) for dataset in self.datasets])


class _Drawn(Subset[T]):
    """A view whose items the engine draws. Item i depends on (key, epoch, i)."""

    _replace = False

    def __init__(self, dataset: Indexed[T], sample_size: int | None, key: Any) -> None:
        from millstream._run.state import concrete_words

        super().__init__(dataset)
        count = len(self.dataset)
        size = count if sample_size is None else sample_size
        self.sample_size = check.whole("sample_size", size, 0)
        if size > count and not (self._replace and count):
            raise check.ArgumentError(
                f"Invalid sample size: {size} items cannot be drawn from "
                f"{count or 'an empty data set'}. Use SampledDatasetWithReplacement, "
                "or a smaller sample_size."
            )
        self.key, self._epoch = concrete_words(key), 0

    def __len__(self) -> int:
        return self.sample_size

    def _at(self, indices: np.ndarray) -> np.ndarray:
        samples, draws = len(self.dataset), self.sample_size if self._replace else None
        return drawn_samples(samples, draws, self.key, self._epoch, indices)

    def at_epoch(self, epoch: int) -> Self:
        view = copy.copy(self)
        view.dataset = self.dataset.at_epoch(epoch)
        view._epoch = check.whole("epoch", epoch, 0)
        return view


class ShuffledDataset(_Drawn[T]):
    """Every item once, in a random order that depends on ``key`` (0 by default).

    The order stays the same from one iteration to the next. ``at_epoch(n)`` returns the
    same items in the order of epoch n.
    """

    def __init__(self, dataset: Indexed[T], key: Any = None) -> None:
        super().__init__(dataset, None, key)


class _Sampled(_Drawn[T]):
    def __init__(self, dataset: Indexed[T], sample_size: int, key: Any = None) -> None:
        super().__init__(dataset, sample_size, key)


class SampledDatasetWithoutReplacement(_Sampled[T]):
    """``sample_size`` different items, drawn at random with ``key``."""


class SampledDatasetWithReplacement(_Sampled[T]):
    """``sample_size`` items, drawn at random with ``key``. Items may repeat."""

    _replace = True


SampledDataset = SampledDatasetWithoutReplacement
