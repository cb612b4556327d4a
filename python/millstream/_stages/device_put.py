"""The stage that puts batches on a device or on the devices of a mesh."""

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
    """Puts batches on ``device``.

    Pass a ``jax.Device`` or a name such as "cpu" or "gpu:1". The default is the first
    local device. A Python loop receives arrays on that device. Inside jit, batches are
    on the device that runs the program.

    Pass a ``NamedSharding`` to split batches over the devices of its mesh, in a Python
    loop and inside jit. The arrays are global. Each process reads only the rows that
    its devices need, and reads each row once. See docs/sharding.md.
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
