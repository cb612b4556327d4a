"""The stage that puts batches on a device or on the devices of a mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh, PartitionSpec, Sharding

from millstream._core.description import Tree
from millstream._core.devices import device_named
from millstream._core.public import public
from millstream._delivery.placement import placement_of, placements_of
from millstream._delivery.sharding import constrained
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

    Pass a pytree of ``NamedSharding`` to split each array of a batch in its own way. It
    has the structure of the batch at this stage, or is a prefix of it. All shardings
    need the same mesh and the same first entry, which splits the rows.
    """

    device: Any = None

    def __post_init__(self) -> None:
        if self.device is None:
            chosen: Any = jax.local_devices()[0]
        elif isinstance(self.device, Sharding | PartitionSpec | Mesh):
            chosen = placement_of(self.device)
        elif jax.tree_util.all_leaves([self.device]):
            chosen = device_named(self.device)
        else:
            chosen = placements_of(self.device)
        object.__setattr__(self, "device", chosen)

    @property
    def sharding(self) -> Tree:
        """The sharding or the pytree of shardings, or None for one device."""
        return None if isinstance(self.device, jax.Device) else self.device

    def place(self, builder: Builder) -> None:
        builder.put_on(self.device, trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        if self.sharding is None or not batched:
            return value
        return constrained(self.sharding, value)
