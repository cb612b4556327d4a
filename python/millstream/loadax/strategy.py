"""Batching strategies, which group items into batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

from millstream.loadax._arguments import whole
from millstream.loadax._types import T


class BatchStrategy(ABC, Generic[T]):
    """Collects items until they make a batch. Every iterator uses its own clone."""

    size: int = 1
    """The expected number of items per batch. Workers load this many at a time."""

    @abstractmethod
    def add(self, item: T) -> None:
        """Adds an item."""

    @abstractmethod
    def batch(self, force: bool) -> list[T] | None:
        """Removes and returns the items of a batch, or None if there are too few.

        With ``force`` it returns all the items that are left, or None if there are
        none.
        """

    @abstractmethod
    def clone(self) -> BatchStrategy[T]:
        """The same strategy without items."""

    def num_batches(self, num_items: int, *, drop_last: bool = False) -> int:
        """The number of batches from ``num_items``; ``TypeError`` if it is unknown."""
        del num_items, drop_last
        raise TypeError(
            f"{type(self).__name__} does not know how many batches it makes. Define "
            "num_batches() in it to use len(loader)."
        )


class FixedBatchStrategy(BatchStrategy[T]):
    """Batches of ``batch_size`` items; only the last may be smaller."""

    def __init__(self, batch_size: int) -> None:
        self.size = self.batch_size = whole("batch_size", batch_size, 1)
        self._items: list[T] = []

    def add(self, item: T) -> None:
        self._items.append(item)

    def batch(self, force: bool) -> list[T] | None:
        if not self._items or (len(self._items) < self.size and not force):
            return None
        taken, self._items = self._items[: self.size], self._items[self.size :]
        return taken

    def clone(self) -> FixedBatchStrategy[T]:
        return FixedBatchStrategy(self.size)

    def num_batches(self, num_items: int, *, drop_last: bool = False) -> int:
        return num_items // self.size if drop_last else -(-num_items // self.size)
