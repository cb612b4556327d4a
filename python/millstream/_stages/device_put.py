"""Where batches are put: a device, or the devices of a mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding

from millstream._core.description import Tree
from millstream._core.devices import device_named
from millstream._core.public import public
from millstream._delivery.sharding import constrained, placement_of
from millstream._stages.stage import Stage

if TYPE_CHECKING:
    from millstream._run.builder import Builder


@public
@dataclass(frozen=True, eq=False)
class DevicePutTransform(Stage):
    """Puts batches onto ``device``: one of JAX's, or "cpu", "gpu:1"; or the first.

    In a Python loop the arrays arrive there. Inside jit the program itself says
    where it runs, and batches are made there.

    A ``NamedSharding`` in its place splits batches over the devices of its mesh, in a
    Python loop and inside jit: each process reads the rows that its devices need,
    each row once, and the arrays are global. See docs/sharding.md.
    """

    device: Any = None

    def __post_init__(self) -> None:
        if self.device is None:
            chosen: Any = jax.local_devices()[0]
        elif isinstance(self.device, jax.sharding.Sharding):
            chosen = placement_of(self.device)
        else:
            chosen = device_named(self.device)
        object.__setattr__(self, "device", chosen)

    @property
    def sharding(self) -> NamedSharding | None:
        """How batches are split over devices, or None for one device."""
        return self.device if isinstance(self.device, NamedSharding) else None

    def place(self, builder: Builder) -> None:
        builder.put_on(self.device, trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        if self.sharding is None or not batched:
            return value
        return constrained(self.sharding, value)
