"""Batches on many devices: which rows each device needs, and the global arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    SingleDeviceSharding,
)

from millstream._core.description import Tree
from millstream._delivery.aliasing import FastPut, fast_put_of, is_guarded


def placement_of(given: jax.sharding.Sharding) -> NamedSharding | jax.Device:
    """Returns the sharding of batches, or the device of a ``SingleDeviceSharding``.

    Raises ``TypeError`` or ``ValueError`` for a sharding that is not supported.
    """
    if isinstance(given, SingleDeviceSharding):
        (device,) = given.device_set
        if _has_other_memory(given):
            raise ValueError(
                f"DevicePutTransform: memory_kind={given.memory_kind!r} is not "
                "supported for a single device. Use a NamedSharding over a mesh with "
                "one device."
            )
        return device
    if not isinstance(given, NamedSharding) or not isinstance(given.mesh, Mesh):
        raise TypeError(
            "DevicePutTransform: expected a device or a NamedSharding over a Mesh, "
            f"found {given!r}"
        )
    for entry in given.spec:
        if entry is PartitionSpec.UNCONSTRAINED:
            raise ValueError(
                f"DevicePutTransform: {given.spec} leaves an axis unconstrained. Name "
                "the mesh axes that split it, or use None."
            )
    if not given.addressable_devices:
        raise ValueError(
            f"DevicePutTransform: process {jax.process_index()} has no device in the "
            f"mesh {dict(given.mesh.shape)}"
        )
    if _has_other_memory(given) and given.memory_kind != "pinned_host":
        raise ValueError(
            f"DevicePutTransform: jit does not preserve memory_kind="
            f"{given.memory_kind!r}. Use 'pinned_host' or the default memory."
        )
    return given


def _has_other_memory(sharding: jax.sharding.Sharding) -> bool:
    """Whether a sharding uses a memory other than the devices' default memory."""
    device: Any = next(iter(sharding.addressable_devices), None)
    if device is None:
        return False
    return sharding.memory_kind not in (None, device.default_memory().kind)


@dataclass(frozen=True, eq=False)
class Split:
    """How a sharding splits batches of one size over the devices of a mesh."""

    sharding: NamedSharding
    batch_size: int
    axes: tuple[str, ...]
    """The mesh axes that split the rows, the slowest-varying first."""
    shards: int
    """The number of shards of a batch."""
    parts: tuple[tuple[int, int], ...]
    """(first row, rows) of each shard that a device of this process needs."""

    @property
    def rows(self) -> int:
        """The number of rows in a shard."""
        return self.batch_size // self.shards

    @property
    def mesh(self) -> Mesh:
        return cast(Mesh, self.sharding.mesh)

    @property
    def devices(self) -> int:
        """The number of devices of this process in the mesh."""
        return len(self.sharding.addressable_devices)

    @property
    def processes(self) -> list[int]:
        """The processes whose devices are in the mesh."""
        return sorted({device.process_index for device in self.mesh.devices.flat})

    @functools.cached_property
    def rows_spec(self) -> PartitionSpec:
        """The spec that splits only the rows."""
        return PartitionSpec(*self.sharding.spec[:1])

    @functools.cached_property
    def rows_sharding(self) -> NamedSharding:
        """The sharding that splits only the rows, in the default memory."""
        return NamedSharding(self.mesh, self.rows_spec)


def split_of(sharding: NamedSharding, batch_size: int) -> Split:
    """Returns how ``sharding`` splits batches of ``batch_size`` rows.

    Raises ``ValueError`` if the number of shards does not divide the size.
    """
    mesh = sharding.mesh
    axes = _mesh_axes(sharding.spec[0]) if len(sharding.spec) else ()
    shards = int(np.prod([mesh.shape[axis] for axis in axes], dtype=np.int64))
    if batch_size % shards:
        sizes = ", ".join(f"{axis!r} of {mesh.shape[axis]}" for axis in axes)
        raise ValueError(
            f"DevicePutTransform: a batch of {batch_size} samples cannot be split into "
            f"{shards} shards over the mesh axes ({sizes}). batch_size must be a "
            f"multiple of {shards}."
        )
    whole = NamedSharding(mesh, PartitionSpec(axes or None))
    rows = whole.addressable_devices_indices_map((batch_size,))
    firsts = sorted({index[0].start or 0 for index in rows.values() if index})
    parts = tuple((first, batch_size // shards) for first in firsts)
    return Split(sharding, batch_size, axes, shards, parts)


def check_leaves(sharding: NamedSharding, value: Tree) -> None:
    """Raises ``ValueError`` with the name of a leaf that the sharding cannot split."""
    spec = sharding.spec
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        name = jax.tree_util.keystr(path) or "the batch"
        if len(spec) > len(leaf.shape):
            raise ValueError(
                f"DevicePutTransform: {spec} needs arrays with at least {len(spec)} "
                f"axes, but {name} has the shape {list(leaf.shape)}"
            )
        for axis, (extent, entry) in enumerate(zip(leaf.shape, spec, strict=False)):
            sizes = [sharding.mesh.shape[each] for each in _mesh_axes(entry)]
            if extent % int(np.prod(sizes, dtype=np.int64)):
                raise ValueError(
                    f"DevicePutTransform: axis {axis} of {name} has length {extent}, "
                    f"which cannot be divided by the sizes {sizes} of the mesh axes "
                    f"{_mesh_axes(entry)}"
                )


def constrained(sharding: NamedSharding, value: Tree) -> Tree:
    """Returns ``value`` with each leaf in the given sharding. Call it inside jit."""
    check_leaves(sharding, value)
    explicit = AxisType.Explicit in sharding.mesh.axis_types
    put: Any = jax.sharding.reshard if explicit else lax.with_sharding_constraint
    value = jax.tree.map(lambda x: put(x, sharding), value)
    if _has_other_memory(sharding):  # only device_put changes the memory
        value = jax.tree.map(lambda x: jax.device_put(x, sharding), value)
    return value


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

    rows = split.rows_spec
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

    With ``natively`` the arrays get the full sharding. Otherwise only their rows are
    split, because traced stages run before the sharding applies.
    """

    def __init__(
        self, split: Split, specs: list[jax.ShapeDtypeStruct], natively: bool
    ) -> None:
        layout = split.sharding if natively else split.rows_sharding
        self._kinds = [(spec.shape, layout) for spec in specs]
        self._kinds.append(((split.batch_size,), split.rows_sharding))
        self._shard_at = {first: i for i, (first, _) in enumerate(split.parts)}
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


def _mesh_axes(entry: Any) -> tuple[str, ...]:
    """Returns the mesh axes in an entry of a spec."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)
