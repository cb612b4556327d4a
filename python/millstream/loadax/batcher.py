"""Batching: strategies group items, and batchers turn each group into a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from millstream._core.arguments import function
from millstream.loadax._arguments import whole
from millstream.loadax._types import B, T

if TYPE_CHECKING:
    import jax


class Batcher(Generic[T, B]):
    """Makes a batch from a list of items, on the thread that iterates.

    ``device`` is a device, a name such as ``"gpu:1"``, or a sharding. The arrays of the
    batch are put there asynchronously.
    """

    def __init__(
        self,
        batch_fn: Callable[[list[T]], B],
        device: jax.Device | jax.sharding.Sharding | str | None = None,
    ) -> None:
        self.batch_fn = function("batch_fn", batch_fn)
        self.device: Any = device
        if device is not None and not hasattr(device, "device_set"):  # not a sharding
            from millstream._core.devices import device_named

            self.device = device_named(device)

    def batch(self, data: list[T]) -> B:
        """Makes a batch from these items."""
        return self.place(self.batch_fn(data))

    def place(self, batch: Any) -> Any:
        """Puts the arrays of a batch on the device."""
        if self.device is None:
            return batch
        import jax

        return jax.device_put(batch, self.device)

    @staticmethod
    def stack(
        device: jax.Device | jax.sharding.Sharding | str | None = None,
    ) -> Batcher[Any, Any]:
        """A batcher that stacks pytrees of the same structure into NumPy arrays.

        Workers write the items of such a batch directly into its arrays.
        """
        return Batcher(stack, device)


def stack(items: list[Any]) -> Any:
    """Stacks pytrees of the same structure into NumPy arrays."""
    import jax
    import numpy as np

    return jax.tree.map(lambda *rows: np.stack(rows), *items)


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
