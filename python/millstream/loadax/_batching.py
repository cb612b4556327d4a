"""How items become batches: which belong together, and what is made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.loadax._arguments import whole

if TYPE_CHECKING:
    import jax

T = TypeVar("T")
B = TypeVar("B")


class Batcher(Generic[T, B]):
    """Makes a batch of a list of items, in the thread that asked for it.

    With ``device`` (a device, its name such as ``"gpu:1"``, or a sharding) the arrays
    of the batch are put there; JAX goes on while they are under way.
    """

    def __init__(
        self,
        batch_fn: Callable[[list[T]], B],
        device: jax.Device | jax.sharding.Sharding | str | None = None,
    ) -> None:
        if not callable(batch_fn):
            raise TypeError(f"batch_fn is a function, not {type(batch_fn).__name__}")
        self._batch_fn = batch_fn
        self._device = _placement(device)

    def batch(self, items: list[T]) -> B:
        """The batch of these items."""
        batch = self._batch_fn(items)
        if self._device is None:
            return batch
        import jax

        return jax.device_put(batch, self._device)

    @staticmethod
    def stack(
        device: jax.Device | jax.sharding.Sharding | str | None = None,
    ) -> Batcher[Any, Any]:
        """A batcher that stacks items, pytrees alike, into NumPy arrays, rows first."""
        return Batcher(_stacked, device)


def _stacked(items: list[Any]) -> Any:
    import jax
    import numpy as np

    return jax.tree.map(lambda *rows: np.stack(rows), *items)


def _placement(device: Any) -> Any:
    if device is None:
        return None
    import jax

    from millstream._core.devices import device_named

    if isinstance(device, jax.sharding.Sharding):
        return device
    return device_named(device)


class BatchStrategy(ABC, Generic[T]):
    """Gathers items until they are a batch. Every iterator has a clone of its own."""

    size: int = 1
    """How many items it is likely to want at a time, which is what is loaded ahead."""

    @abstractmethod
    def add(self, item: T) -> None:
        """Takes one more item."""

    @abstractmethod
    def batch(self, force: bool) -> list[T] | None:
        """A batch's items, which it gives up, or None as long as there are too few.

        With ``force`` those that there are, or None where there are none.
        """

    @abstractmethod
    def clone(self) -> BatchStrategy[T]:
        """The same strategy with no items."""

    def num_batches(self, num_items: int, *, drop_last: bool = False) -> int:
        """The batches that so many items make; ``TypeError`` if that is unknown."""
        del num_items, drop_last
        raise TypeError(
            f"{type(self).__name__} does not know how many batches it makes"
        )


class FixedBatchStrategy(BatchStrategy[T]):
    """Batches of ``batch_size`` items; only the last may be smaller."""

    def __init__(self, batch_size: int) -> None:
        self.size = whole("batch_size", batch_size, 1)
        self._items: list[T] = []

    @property
    def batch_size(self) -> int:
        """Items in a batch."""
        return self.size

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
