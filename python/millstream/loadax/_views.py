"""Data sets made of others: mapped, filtered, cut and joined, all when asked."""

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
    """``map_fn(item)`` of every item, each time that it is asked for.

    An item that is None passes as it is.
    """

    def __init__(self, dataset: Indexed[S], map_fn: Callable[[S], T]) -> None:
        super().__init__(dataset)
        if not callable(map_fn):
            raise TypeError(f"map_fn is a function, not {type(map_fn).__name__}")
        self._map_fn: Callable[[Any], Any] = map_fn

    def _item(self, index: int) -> T:
        item: Any = self._inner[index]
        return cast(T, None) if item is None else self._map_fn(item)

    def __repr__(self) -> str:
        name = getattr(self._map_fn, "__name__", type(self._map_fn).__name__)
        return f"MappedDataset({self._inner!r}, {name})"


class MappedBatchDataset(View[T]):
    """``fn(items)`` of every ``batch_size`` items; the last time they may be fewer."""

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
    """The items of which ``predicate(item)`` is true, in their order.

    The first use of its length or of an index looks at every item, once; the indices
    of those that stay are kept. A plain loop over it needs neither.
    """

    def __init__(self, dataset: Indexed[T], predicate: Callable[[T], bool]) -> None:
        super().__init__(dataset)
        self._predicate = predicate
        self._lock = threading.Lock()
        self._kept: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self._indices())

    def _item(self, index: int) -> T:
        return self._inner[int(self._indices()[index])]

    def __iter__(self) -> Iterator[T]:
        for index in range(len(self._inner)):
            item = self._inner[index]
            if self._stays(index, item):
                yield item

    def _indices(self) -> np.ndarray:
        with self._lock:
            if self._kept is None:
                count = len(self._inner)
                kept = (i for i in range(count) if self._stays(i, self._inner[i]))
                self._kept = np.fromiter(kept, np.int64)
            return self._kept

    def _stays(self, index: int, item: T) -> bool:
        try:
            return bool(self._predicate(item))
        except Exception as error:
            error.add_note(f"The predicate was looking at item {index}.")
            raise

    def _over(self, inner: Dataset[Any]) -> Self:
        return type(self)(inner, self._predicate)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._inner, self._predicate), {"_kept": self._kept}

    def __repr__(self) -> str:
        return f"FilteredDataset({self._inner!r})"  # its length may cost a scan


class PartialDataset(View[T]):
    """The items from ``start`` to before ``end``, which may lie past the last."""

    def __init__(self, dataset: Indexed[T], start: int, end: int) -> None:
        super().__init__(dataset)
        self._start = whole("start", start, 0)
        count = len(self._inner)
        if self._start > count or end < self._start:
            raise ArgumentError(
                f"items {start} to {end} are not a part of {count}: "
                f"0 <= start <= end, and start <= {count}"
            )
        self._end = min(whole("end", end, 0), count)

    def __len__(self) -> int:
        return self._end - self._start

    def _item(self, index: int) -> T:
        return self._inner[self._start + index]

    @staticmethod
    def split(dataset: Indexed[T], n: int) -> list[PartialDataset[T]]:
        """``n`` contiguous parts; the first ones have a remainder's items."""
        parts, inner = whole("n", n, 1), dataset_of(dataset)
        size, more = divmod(len(inner), parts)
        edges = [part * size + min(part, more) for part in range(parts + 1)]
        return [PartialDataset(inner, edges[i], edges[i + 1]) for i in range(parts)]

    split_dataset = split


class CombinedDataset(Dataset[T]):
    """The items of several data sets, one after another.

    They are given as a list or one by one.
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
        self._join([dataset_of(part) for part in datasets])

    def _join(self, parts: list[Dataset[Any]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(len(part) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _item(self, index: int) -> T:
        part = bisect_right(self._ends, index)
        first = self._ends[part - 1] if part else 0
        item: T = self._parts[part][index - first]
        return item

    def at_epoch(self, epoch: int) -> CombinedDataset[T]:
        return CombinedDataset([part.at_epoch(epoch) for part in self._parts])

    def __repr__(self) -> str:
        return f"CombinedDataset({self._parts!r})"
