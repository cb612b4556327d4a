"""Batchers, which turn the items of a batch into a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from millstream.loadax._arguments import function
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
