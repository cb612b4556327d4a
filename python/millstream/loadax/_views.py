"""Views of data sets: mapped, filtered, sliced and concatenated on access."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Self, TypeVar, cast, overload

import numpy as np

from millstream.loadax._arguments import ArgumentError, whole
from millstream.loadax._dataset import Dataset, Indexed, View, dataset_of

S = TypeVar("S")
T = TypeVar("T")


class MappedDataset(View[T]):
    """``map_fn(item)`` for every item, computed on each access.

    An item that is None stays None.
    """

    def __init__(self, dataset: Indexed[S], map_fn: Callable[[S], T]) -> None:
        super().__init__(dataset)
        if not callable(map_fn):
            raise TypeError(f"map_fn must be a function, not {type(map_fn).__name__}")
        self._map_fn: Callable[[Any], Any] = map_fn

    def _item(self, index: int) -> T:
        item: Any = self._inner[index]
        return cast(T, None) if item is None else self._map_fn(item)

    def __repr__(self) -> str:
        name = getattr(self._map_fn, "__name__", type(self._map_fn).__name__)
        return f"MappedDataset({self._inner!r}, {name})"


class MappedBatchDataset(View[T]):
    """``fn(items)`` for every ``batch_size`` items; the last call may get fewer."""

    def __init__(
        self, dataset: Indexed[S], fn: Callable[[list[S]], T], batch_size: int = 32
    ) -> None:
        super().__init__(dataset)
        self._fn: Callable[[list[Any]], T] = fn
        self._batch_size = whole("batch_size", batch_size, 1)

    def __len__(self) -> int:
        return -(-len(self._inner) // self._batch_size)

    def _item(self, index: int) -> T:
        first = index * self._batch_size
        end = min(first + self._batch_size, len(self._inner))
        return self._fn([self._inner[i] for i in range(first, end)])


class FilteredDataset(View[T]):
    """The items for which ``predicate(item)`` is true, in order.

    The first use of ``len()`` or of an index reads every item once and stores the
    indices of those that pass. A plain loop reads items as it goes.
    """

    def __init__(self, dataset: Indexed[T], predicate: Callable[[T], bool]) -> None:
        super().__init__(dataset)
        self._predicate = predicate
        self._lock = threading.Lock()
        self._passing: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._indices())

    def _item(self, index: int) -> T:
        return self._inner[int(self._indices()[index])]

    def __iter__(self) -> Iterator[T]:
        for index in range(len(self._inner)):
            item = self._inner[index]
            if self._passes(index, item):
                yield item

    def _indices(self) -> np.ndarray:
        with self._lock:
            if self._passing is None:
                count = len(self._inner)
                passing = (i for i in range(count) if self._passes(i, self._inner[i]))
                self._passing = np.fromiter(passing, np.int64)
            return self._passing

    def _passes(self, index: int, item: T) -> bool:
        try:
            return bool(self._predicate(item))
        except Exception as error:
            error.add_note(f"The predicate raised this error for item {index}.")
            raise

    def _over(self, inner: Dataset[Any]) -> Self:
        return type(self)(inner, self._predicate)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._inner, self._predicate), {"_passing": self._passing}

    def __repr__(self) -> str:
        return f"FilteredDataset({self._inner!r})"  # len() may read every item


class PartialDataset(View[T]):
    """The items from ``start`` up to but not including ``end``.

    An ``end`` after the last item means the end of the data set.
    """

    def __init__(self, dataset: Indexed[T], start: int, end: int) -> None:
        super().__init__(dataset)
        self._start = whole("start", start, 0)
        count = len(self._inner)
        if self._start > count or end < self._start:
            raise ArgumentError(
                f"start {start} and end {end} do not fit {count} items: "
                f"expected 0 <= start <= end and start <= {count}"
            )
        self._end = min(whole("end", end, 0), count)

    def __len__(self) -> int:
        return self._end - self._start

    def _item(self, index: int) -> T:
        return self._inner[self._start + index]

    @staticmethod
    def split(dataset: Indexed[T], n: int) -> list[PartialDataset[T]]:
        """Splits a data set into ``n`` contiguous data sets.

        If the items do not divide evenly, the first ones have one item more.
        """
        count, inner = whole("n", n, 1), dataset_of(dataset)
        size, remainder = divmod(len(inner), count)
        edges = [i * size + min(i, remainder) for i in range(count + 1)]
        return [PartialDataset(inner, edges[i], edges[i + 1]) for i in range(count)]

    split_dataset = split


class CombinedDataset(Dataset[T]):
    """The items of several data sets, one data set after another.

    Pass the data sets as a list or as separate arguments.
    """

    @overload
    def __init__(self, datasets: Sequence[Indexed[T]], /) -> None: ...

    @overload
    def __init__(
        self, first: Indexed[T], second: Indexed[T], /, *more: Indexed[T]
    ) -> None: ...

    def __init__(self, *datasets: Any) -> None:
        if len(datasets) == 1 and not isinstance(datasets[0], Dataset):
            datasets = tuple(datasets[0])
        self._datasets = [dataset_of(dataset) for dataset in datasets]
        self._ends = list(accumulate(len(dataset) for dataset in self._datasets))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _item(self, index: int) -> T:
        number = bisect_right(self._ends, index)
        first = self._ends[number - 1] if number else 0
        item: T = self._datasets[number][index - first]
        return item

    def at_epoch(self, epoch: int) -> CombinedDataset[T]:
        return CombinedDataset([dataset.at_epoch(epoch) for dataset in self._datasets])

    def __repr__(self) -> str:
        return f"CombinedDataset({self._datasets!r})"
