"""Batches on many devices: which rows each device needs, and the global arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from millstream._core.description import Tree
from millstream._delivery.aliasing import FastPut, fast_put_of, is_guarded
from millstream._delivery.placement import (
    check_leaves,
    has_other_memory,
    row_axes,
    sharding_of_each,
)


@dataclass(frozen=True, eq=False)
class Split:
    """How batches of one size are split over the devices of a mesh.

    Raises ``ValueError`` if the number of shards does not divide the size.
    """

    shardings: Tree
    """The sharding of all arrays, or a pytree of shardings; see ``placements_of``."""
    batch_size: int

    def __post_init__(self) -> None:
        if self.batch_size % self.shards:
            sizes = ", ".join(f"{x!r} of {self.mesh.shape[x]}" for x in self.axes)
            raise ValueError(
                f"DevicePutTransform: a batch of {self.batch_size} samples cannot be "
                f"split into {self.shards} shards over the mesh axes ({sizes}). "
                f"batch_size must be a multiple of {self.shards}."
            )

    @functools.cached_property
    def rows_sharding(self) -> NamedSharding:
        """The sharding that splits only the rows, in the default memory."""
        any_sharding = jax.tree.leaves(self.shardings)[0]
        return NamedSharding(any_sharding.mesh, PartitionSpec(*any_sharding.spec[:1]))

    @property
    def mesh(self) -> Mesh:
        return cast(Mesh, self.rows_sharding.mesh)

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that split the rows, the slowest-varying first."""
        return row_axes(self.rows_sharding)

    @functools.cached_property
    def shards(self) -> int:
        """The number of shards of a batch."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def rows(self) -> int:
        """The number of rows in a shard."""
        return self.batch_size // self.shards

    @functools.cached_property
    def local_shards(self) -> list[tuple[int, int]]:
        """(first row, rows) of each shard that a device of this process needs."""
        held = self.rows_sharding.addressable_devices_indices_map((self.batch_size,))
        firsts = {index[0].start or 0 for index in held.values() if index}
        return [(first, self.rows) for first in sorted(firsts)]

    @property
    def devices(self) -> int:
        """The number of devices of this process in the mesh."""
        return len(self.rows_sharding.addressable_devices)

    @property
    def processes(self) -> list[int]:
        """The processes whose devices are in the mesh."""
        return sorted({device.process_index for device in self.mesh.devices.flat})


def constrained(shardings: Tree, value: Tree) -> Tree:
    """Returns ``value`` with each leaf in its sharding. Call it inside jit.

    ``shardings`` is one sharding or a pytree of shardings.
    """
    check_leaves(shardings, value)

    def constrain(x: Any, sharding: NamedSharding) -> Any:
        explicit = AxisType.Explicit in sharding.mesh.axis_types
        put: Any = jax.sharding.reshard if explicit else lax.with_sharding_constraint
        x = put(x, sharding)
        # Only device_put changes the memory.
        return jax.device_put(x, sharding) if has_other_memory(sharding) else x

    return jax.tree.map(constrain, value, sharding_of_each(shardings, value))


def replicated(split: Split, arrays: list[Any]) -> list[jax.Array]:
    """Copies arrays, which every process has, to each device of the mesh."""
    everywhere = NamedSharding(split.mesh, PartitionSpec())

    def whole(x: Any) -> jax.Array:
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, everywhere, lambda _: host)

    return [whole(x) for x in arrays]


def over_shards(
    split: Split, fields: int, one: Callable[[Any, Any], tuple[list[Any], Any, Any]]
) -> Callable[[Any], tuple[list[Any], Any, Any]]:
    """Returns a function that calls ``one(words, shard)`` on each device.

    ``one`` returns ``(leaves, mask, words)`` of a shard.
    """

    def on_device(words: Any) -> tuple[list[Any], Any, Any]:
        number: Any = lax.axis_index(split.axes) if split.axes else 0
        return one(words, jnp.asarray(number, jnp.uint32))

    rows = split.rows_sharding.spec
    return on_each_device(split, on_device, ([rows] * fields, rows, PartitionSpec()))


def on_each_device(split: Split, one: Callable[[Any], Any], specs: Any) -> Any:
    """Returns a function that calls ``one(words)`` on each device.

    ``specs`` says how the results are split.
    """
    return jax.shard_map(
        one,
        mesh=split.mesh,
        in_specs=PartitionSpec(),
        out_specs=specs,
        check_vma=False,  # devices with the same rows get the same bytes
    )


class Assembly:
    """Assembles global arrays from the shards of the engine, without a copy on a CPU.

    ``tree`` is the pytree of the fields. With ``natively`` the arrays get their full
    shardings. Otherwise only their rows are split, because traced stages run before the
    shardings apply.
    """

    def __init__(
        self,
        split: Split,
        specs: list[jax.ShapeDtypeStruct],
        tree: Tree,
        natively: bool,
    ) -> None:
        shardings = split.shardings if natively else split.rows_sharding
        each = jax.tree.leaves(sharding_of_each(shardings, tree))
        of_field = dict(zip(jax.tree.leaves(tree), each, strict=True))
        rows = split.rows_sharding  # for fields that are not part of the value
        self._kinds = [
            (spec.shape, of_field.get(i, rows)) for i, spec in enumerate(specs)
        ]
        self._kinds.append(((split.batch_size,), split.rows_sharding))
        self._shard_at = {first: i for i, (first, _) in enumerate(split.local_shards)}
        self._known: list[tuple[FastPut, list[Any]] | None]
        self._known = [None] * len(self._kinds)

    def __call__(self, fields: list[Any]) -> list[jax.Array]:
        """Returns one array per field, then the mask.

        ``fields`` has the fields and the mask of the first shard, then of the next.
        """
        stride = len(self._kinds)
        return [self._array(i, fields[i::stride]) for i in range(stride)]

    def _array(self, field: int, views: list[np.ndarray]) -> jax.Array:
        def shard(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None  # every array has rows
            rows = views[self._shard_at[index[0].start or 0]]
            return rows[(slice(None), *index[1:])]

        known = self._known[field]
        if known is not None and not is_guarded():
            fast_put, indices = known
            return fast_put.put([shard(index) for index in indices])
        array = jax.make_array_from_callback(*self._kinds[field], shard)
        indices = [each.index for each in array.addressable_shards]
        found = fast_put_of(array, [shard(index) for index in indices])
        self._known[field] = None if found is None else (found, indices)
        return array
