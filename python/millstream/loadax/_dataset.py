"""Data sets: items by index, with ``get(index)`` or with ``dataset[index]``."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    Self,
    TypeVar,
    cast,
    runtime_checkable,
)

if TYPE_CHECKING:
    from millstream.loadax._drawn import ShuffledDataset
    from millstream.loadax._shards import ShardedDataset
    from millstream.loadax._views import (
        FilteredDataset,
        MappedBatchDataset,
        MappedDataset,
    )

T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


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

    def _item(self, index: int) -> T_co:
        """The item at an index in [0, len)."""
        if type(self).__getitem__ is not Dataset.__getitem__:
            return self[index]
        if type(self).get is not Dataset.get:
            return cast(T_co, self.get(index))
        raise TypeError(f"{type(self).__name__} must define get() or __getitem__()")

    def _place(self, index: int) -> int | None:
        """``index`` counted from the start, or None if it is out of range."""
        number, length = operator.index(index), len(self)
        if -length <= number < length:
            return number % length
        return None

    def __iter__(self) -> Iterator[T_co]:
        return DatasetIterator(self)

    def is_empty(self) -> bool:
        """Whether there are no items."""
        return len(self) == 0

    def at_epoch(self, epoch: int) -> Dataset[T_co]:
        """The same data set with the random order of ``epoch``, if it has any."""
        del epoch
        return self

    def map(self, fn: Callable[[T_co], U]) -> MappedDataset[U]:
        """``fn(item)`` for every item, computed on each access."""
        from millstream.loadax._views import MappedDataset

        return MappedDataset(self, fn)

    def filter(self, predicate: Callable[[T_co], bool]) -> FilteredDataset[T_co]:
        """The items for which ``predicate(item)`` is true."""
        from millstream.loadax._views import FilteredDataset

        return FilteredDataset(self, predicate)

    def map_batch(
        self, fn: Callable[[list[T_co]], U], batch_size: int = 32
    ) -> MappedBatchDataset[U]:
        """``fn(items)`` for every ``batch_size`` items; the last call may get fewer."""
        from millstream.loadax._views import MappedBatchDataset

        return MappedBatchDataset(self, fn, batch_size)

    def shuffle(self, key: Any) -> ShuffledDataset[T_co]:
        """The same items in a random order that depends on ``key``, without a copy."""
        from millstream.loadax._drawn import ShuffledDataset

        return ShuffledDataset(self, key)

    def split_dataset_by_node(self, world_size: int, rank: int) -> Dataset[T_co]:
        """The contiguous shard of node ``rank``.

        If the items do not divide evenly, the first shards have one item more.
        """
        from millstream.loadax._shards import ShardedDataset

        shard: ShardedDataset[T_co] = ShardedDataset(
            self, world_size, rank, drop_remainder=False
        )
        return shard

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} items)"


class View(Dataset[T_co]):
    """A data set that takes its items from another one, ``_inner``."""

    def __init__(self, inner: Any) -> None:
        self._inner = dataset_of(inner)

    def __len__(self) -> int:
        return len(self._inner)

    def at_epoch(self, epoch: int) -> Self:
        inner = self._inner.at_epoch(epoch)
        return self if inner is self._inner else self._over(inner)

    def _over(self, inner: Dataset[Any]) -> Self:
        """The same view of another data set of the same length."""
        view = copy.copy(self)
        view._inner = inner
        return view


class DatasetIterator(Iterator[T_co]):
    """Iterates over a data set once, from the first item to the last."""

    def __init__(self, dataset: Dataset[T_co]) -> None:
        self._dataset = dataset
        self._next = 0

    def __next__(self) -> T_co:
        if self._next >= len(self._dataset):
            raise StopIteration
        item = self._dataset[self._next]
        self._next += 1
        return item


class _GetAdapter(Dataset[Any]):
    """Adapts an object that has ``get`` and a length, but is not a `Dataset`."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def _item(self, index: int) -> Any:
        return self._items.get(index)


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
        from millstream.loadax._memory import InMemoryDataset

        return InMemoryDataset(items)
    if hasattr(items, "get"):
        return _GetAdapter(items)
    raise TypeError(f"{type(items).__name__} must define get() or __getitem__()")
