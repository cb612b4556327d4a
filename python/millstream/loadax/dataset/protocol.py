"""Data sets: items by index, with ``get(index)`` or with ``dataset[index]``."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, runtime_checkable

import numpy as np

from millstream._core.arguments import renamed
from millstream.loadax import _arguments as check
from millstream.loadax._types import DatasetItem as DatasetItem
from millstream.loadax._types import T, T_co, U

if TYPE_CHECKING:
    from millstream.loadax.dataset import transform as views


class Indexed(Protocol[T_co]):
    """Anything with a length and items by index, such as a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


@runtime_checkable
class Shuffleable(Protocol):
    """A data set with ``shuffle(key)``."""

    def shuffle(self, key: Any) -> Any: ...


@runtime_checkable
class Shardable(Protocol):
    """A data set with ``split_dataset_by_node(world_size, rank)``."""

    def split_dataset_by_node(self, world_size: int, rank: int) -> Any: ...


class Dataset(Generic[T_co]):
    """Items by index.

    A subclass defines ``__len__`` and either ``get(index)`` or ``__getitem__(index)``.
    These must be pure functions of the index and may be called from any thread. For an
    index out of range ``get`` returns None and ``dataset[index]`` raises
    ``IndexError``. Negative indices count from the end.
    """

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} must define __len__()")

    def get(self, index: int) -> T_co | None:
        """The item at ``index``, or None if it is out of range."""
        place = self._place(index)
        return None if place is None else self._item(place)

    def __getitem__(self, index: int) -> T_co:
        place = self._place(index)
        if place is None:
            raise IndexError(f"index {index} is out of range for {len(self)} items")
        return self._item(place)

    def __init_subclass__(cls) -> None:
        """Lets loaders and views call a ``__getitem__`` or ``get`` of the subclass."""
        own: Any = cls.__dict__.get("__getitem__", cls.__dict__.get("get"))
        if own is not None:
            this: Any = cls
            this._items = lambda self, indices: [own(self, i) for i in indices]
            this._reader, this._source = own.__get__, Dataset._source
            this._item = own if cls._item is Dataset._item else cls._item

    def _item(self, index: int) -> T_co:
        """The item at an index in [0, len), for ``get`` and ``__getitem__``."""
        raise TypeError(f"{type(self).__name__} must define get() or __getitem__()")

    def _items(self, indices: list[int]) -> list[T_co]:
        """The items at indices in [0, len), for loaders and views."""
        return [self._item(index) for index in indices]

    def _reader(self) -> Callable[[int], T_co] | None:
        """The fastest function for one item, or None if `_items` is faster."""
        return self._item

    def _source(self, indices: np.ndarray) -> tuple[Dataset[T_co], np.ndarray]:
        """A data set and indices in it that give the same items faster."""
        return self, indices

    def _place(self, index: int) -> int | None:
        """``index`` counted from the start, or None if it is out of range."""
        number, length = operator.index(index), len(self)
        return number % length if -length <= number < length else None

    def __iter__(self) -> Iterator[T_co]:
        return DatasetIterator(self)

    def is_empty(self) -> bool:
        """Whether there are no items."""
        return len(self) == 0

    def at_epoch(self, epoch: int) -> Dataset[T_co]:
        """The same data set with the random order of ``epoch``, if it has any."""
        del epoch
        return self

    @renamed(transform="fn")
    def map(self, fn: Callable[[T_co], U]) -> views.MappedDataset[U]:
        """``fn(item)`` for every item, computed on each access."""
        return _transform().MappedDataset(self, fn)

    def filter(self, predicate: Callable[[T_co], bool]) -> views.FilteredDataset[T_co]:
        """The items for which ``predicate(item)`` is true."""
        return _transform().FilteredDataset(self, predicate)

    @renamed(transform="fn")
    def map_batch(
        self, fn: Callable[[list[T_co]], U], batch_size: int = 32
    ) -> views.MappedBatchDataset[U]:
        """``fn(items)`` for every ``batch_size`` items; the last call may get fewer."""
        return _transform().MappedBatchDataset(self, fn, batch_size)

    def shuffle(self, key: Any) -> views.ShuffledDataset[T_co]:
        """The same items in a random order that depends on ``key``, without a copy."""
        return _transform().ShuffledDataset(self, key)

    def split_dataset_by_node(self, world_size: int, rank: int) -> Dataset[T_co]:
        """The contiguous shard of node ``rank``.

        If the items do not divide evenly, the first shards have one item more.
        """
        return _transform().ShardedDataset(self, world_size, rank, drop_remainder=False)

    def __repr__(self) -> str:
        shown = [f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_")]
        return f"{type(self).__name__}({', '.join(shown)})"


def _transform() -> Any:
    from millstream.loadax.dataset import transform

    return transform


class DatasetIterator(Iterator[T_co]):
    """Iterates over a data set once, from the first item to the last."""

    def __init__(self, dataset: Dataset[T_co]) -> None:
        self._items = (dataset[index] for index in range(len(dataset)))

    def __next__(self) -> T_co:
        return next(self._items)


class View(Dataset[T_co]):
    """A data set that takes its items from another one."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset_of(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def _reader(self) -> Callable[[int], T_co] | None:
        return None if self.dataset._reader() is None else self._item

    def at_epoch(self, epoch: int) -> Self:
        view = copy.copy(self)
        view.dataset = self.dataset.at_epoch(epoch)
        return self if view.dataset is self.dataset else view


class Subset(View[T_co]):
    """Some items of another data set: those at ``_at(indices)``."""

    def _at(self, indices: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _item(self, index: int) -> T_co:
        return Subset._items(self, [index])[0]

    def _items(self, indices: list[int]) -> list[T_co]:
        return self.dataset._items(self._at(np.array(indices, np.int64)).tolist())

    def _source(self, indices: np.ndarray) -> tuple[Dataset[T_co], np.ndarray]:
        return self.dataset._source(self._at(indices))


class InMemoryDataset(Dataset[T]):
    """The items of a sequence, which is not copied."""

    def __init__(self, items: Indexed[T] | Iterable[T]) -> None:
        if isinstance(items, Mapping):
            raise TypeError(
                f"items must be a sequence, not a {type(items).__name__}. Pass "
                "list(items.values()) to use its values."
            )
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            items = list(items)
        self.items: Any = items

    def __len__(self) -> int:
        return len(self.items)

    def _item(self, index: int) -> T:
        return InMemoryDataset._items(self, [index])[0]

    def _items(self, indices: list[int]) -> list[T]:
        if hasattr(self.items, "__getitems__"):
            return list(self.items.__getitems__(indices))
        return [self.items[index] for index in indices]

    def _reader(self) -> Callable[[int], T] | None:
        return None if hasattr(self.items, "__getitems__") else self.items.__getitem__

    def __repr__(self) -> str:
        if self._reader() is None:
            return super().__repr__()
        first = ", ".join(repr(self.items[i]) for i in range(min(2, len(self))))
        return f"{type(self).__name__}(items=[{first}]...)"


class SimpleDataset(InMemoryDataset[T]):
    """The items of a list."""


class RangeDataset(Dataset[int]):
    """The integers of ``range(start, end, step)``."""

    def __init__(self, start: int, end: int, step: int = 1) -> None:
        self.start, self.end = start, end
        self.step = check.whole("step", step, 1, "greater than 0")
        if start >= end:
            raise check.ArgumentError(
                f"start must be less than end, not {start} and {end}"
            )
        self._range = range(start, end, step)

    def __len__(self) -> int:
        return len(self._range)

    def _item(self, index: int) -> int:
        return self._range[index]


def dataset_of(items: Any) -> Dataset[Any]:
    """``items`` itself if it is a `Dataset`, else a `Dataset` that wraps it.

    Raises ``TypeError`` if ``items`` has no length or no items by index.
    """
    if isinstance(items, Dataset):
        return items
    if isinstance(items, Mapping) or not hasattr(items, "__len__"):
        raise TypeError(
            "a data set must have a length and items by index, like a list; "
            f"found {type(items).__name__}"
        )
    if hasattr(items, "__getitem__"):
        return InMemoryDataset(items)
    if hasattr(items, "get"):
        return _transform().MappedDataset(range(len(items)), items.get)
    raise TypeError(f"{type(items).__name__} must define get() or __getitem__()")
