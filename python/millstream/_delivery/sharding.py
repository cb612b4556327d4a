"""Batches over many devices: who needs which rows, and the arrays made of them."""

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
from millstream._delivery.aliasing import Like, is_guarded, like_of


def placement_of(given: jax.sharding.Sharding) -> NamedSharding | jax.Device:
    """The sharding that batches get, or the one device that it means.

    Raises ``TypeError`` or ``ValueError`` for one that does not say how rows are split.
    """
    if isinstance(given, SingleDeviceSharding):
        (device,) = given.device_set
        if _elsewhere(given):
            raise ValueError(
                f"DevicePutTransform: memory_kind={given.memory_kind!r} of a single "
                "device is not heeded; use a NamedSharding of a mesh of one"
            )
        return device
    if not isinstance(given, NamedSharding) or not isinstance(given.mesh, Mesh):
        raise TypeError(
            "DevicePutTransform takes a device or a NamedSharding of a mesh of "
            f"devices, not {given!r}"
        )
    for entry in given.spec:
        if entry is PartitionSpec.UNCONSTRAINED:
            raise ValueError(
                f"DevicePutTransform: {given.spec} leaves an axis unconstrained; name "
                "the mesh axes that split it, or None"
            )
    if not given.addressable_devices:
        raise ValueError(
            f"DevicePutTransform: process {jax.process_index()} has no device in the "
            f"mesh {dict(given.mesh.shape)}"
        )
    if _elsewhere(given) and given.memory_kind != "pinned_host":
        raise ValueError(
            f"DevicePutTransform: memory_kind={given.memory_kind!r} is not kept inside "
            "jit; use 'pinned_host' or the devices' own"
        )
    return given


def _elsewhere(sharding: jax.sharding.Sharding) -> bool:
    """Whether it asks for another memory than the devices' own."""
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
    """The mesh axes that split the rows, the slowest first."""
    shards: int
    """Into how many shards they split a batch."""
    parts: tuple[tuple[int, int], ...]
    """(first row, rows) of each shard that a device of this process needs."""

    @property
    def rows(self) -> int:
        """The rows of a shard."""
        return self.batch_size // self.shards

    @property
    def mesh(self) -> Mesh:
        return cast(Mesh, self.sharding.mesh)

    @property
    def devices(self) -> int:
        """How many devices of this process ask for shards."""
        return len(self.sharding.addressable_devices)

    @property
    def processes(self) -> list[int]:
        """The processes whose devices are in the mesh."""
        return sorted({device.process_index for device in self.mesh.devices.flat})

    @functools.cached_property
    def rows_spec(self) -> PartitionSpec:
        """How the first axis is split, all other axes whole."""
        return PartitionSpec(*self.sharding.spec[:1])

    @functools.cached_property
    def rows_sharding(self) -> NamedSharding:
        """That of the mask, which is in the devices' own memory."""
        return NamedSharding(self.mesh, self.rows_spec)


def split_of(sharding: NamedSharding, batch_size: int) -> Split:
    """Raises ``ValueError`` where batches of that size cannot be divided so."""
    mesh = sharding.mesh
    axes = _named(sharding.spec[0]) if len(sharding.spec) else ()
    shards = int(np.prod([mesh.shape[axis] for axis in axes], dtype=np.int64))
    if batch_size % shards:
        sizes = ", ".join(f"{axis!r} of {mesh.shape[axis]}" for axis in axes)
        raise ValueError(
            f"DevicePutTransform: a batch of {batch_size} samples cannot be divided by "
            f"{shards}, which the mesh axes ask for ({sizes}); batch_size has to be a "
            f"multiple of {shards}"
        )
    whole = NamedSharding(mesh, PartitionSpec(axes or None))
    rows = whole.addressable_devices_indices_map((batch_size,))
    firsts = sorted({index[0].start or 0 for index in rows.values() if index})
    parts = tuple((first, batch_size // shards) for first in firsts)
    return Split(sharding, batch_size, axes, shards, parts)


def check_leaves(sharding: NamedSharding, value: Tree) -> None:
    """Raises ``ValueError`` naming the leaf that the sharding does not fit."""
    spec = sharding.spec
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        name = jax.tree_util.keystr(path) or "the batch"
        if len(spec) > len(leaf.shape):
            raise ValueError(
                f"DevicePutTransform: {spec} is for arrays of at least {len(spec)} "
                f"axes; {name} has the shape {list(leaf.shape)}"
            )
        for axis, (extent, entry) in enumerate(zip(leaf.shape, spec, strict=False)):
            sizes = [sharding.mesh.shape[each] for each in _named(entry)]
            if extent % int(np.prod(sizes, dtype=np.int64)):
                raise ValueError(
                    f"DevicePutTransform: axis {axis} of {name}, {extent} long, cannot "
                    f"be divided over mesh axes {_named(entry)} of sizes {sizes}"
                )


def constrained(sharding: NamedSharding, value: Tree) -> Tree:
    """The same with each leaf laid out as the sharding says; to be traced."""
    check_leaves(sharding, value)
    explicit = AxisType.Explicit in sharding.mesh.axis_types
    put: Any = jax.sharding.reshard if explicit else lax.with_sharding_constraint
    value = jax.tree.map(lambda x: put(x, sharding), value)
    if _elsewhere(sharding):  # which the others do not heed
        value = jax.tree.map(lambda x: jax.device_put(x, sharding), value)
    return value


def replicated(split: Split, arrays: list[Any]) -> list[jax.Array]:
    """The same arrays, which every process has, whole on each device of the mesh."""
    everywhere = NamedSharding(split.mesh, PartitionSpec())

    def whole(x: Any) -> jax.Array:
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, everywhere, lambda _: host)

    return [whole(x) for x in arrays]


def over_shards(
    split: Split, fields: int, one: Callable[[Any, Any], tuple[list[Any], Any, Any]]
) -> Callable[[Any], tuple[list[Any], Any, Any]]:
    """``one(words, shard) -> (leaves, mask, words)`` on each device of the mesh."""

    def on_device(words: Any) -> tuple[list[Any], Any, Any]:
        number: Any = lax.axis_index(split.axes) if split.axes else 0
        return one(words, jnp.asarray(number, jnp.uint32))

    rows = split.rows_spec
    return on_each_device(split, on_device, ([rows] * fields, rows, PartitionSpec()))


def on_each_device(split: Split, one: Callable[[Any], Any], specs: Any) -> Any:
    """``one(words)`` on each device of the mesh, its results split as ``specs`` say."""
    return jax.shard_map(
        one,
        mesh=split.mesh,
        in_specs=PartitionSpec(),
        out_specs=specs,
        check_vma=False,  # devices that hold the same rows are given the same bytes
    )


class Assembly:
    """Makes global arrays of the parts that the engine gives, with no copy on a CPU.

    ``natively`` lays them out as the sharding says; else only their rows are split, for
    traced stages that come first.
    """

    def __init__(
        self, split: Split, specs: list[jax.ShapeDtypeStruct], natively: bool
    ) -> None:
        layout = split.sharding if natively else split.rows_sharding
        self._kinds = [(spec.shape, layout) for spec in specs]
        self._kinds.append(((split.batch_size,), split.rows_sharding))
        self._place = {first: i for i, (first, _) in enumerate(split.parts)}
        self._likes: list[tuple[Like, list[Any]] | None] = [None] * len(self._kinds)

    def __call__(self, fields: list[Any]) -> list[jax.Array]:
        """One array a field, and the mask, from those of each part."""
        stride = len(self._kinds)
        return [self._array(i, fields[i::stride]) for i in range(stride)]

    def _array(self, field: int, views: list[np.ndarray]) -> jax.Array:
        def shard(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None  # it is of an array that has rows
            part = views[self._place[index[0].start or 0]]
            return part[(slice(None), *index[1:])]

        known = self._likes[field]
        if known is not None and not is_guarded():
            like, indices = known
            return like.put([shard(index) for index in indices])
        array = jax.make_array_from_callback(*self._kinds[field], shard)
        indices = [each.index for each in array.addressable_shards]
        found = like_of(array, [shard(index) for index in indices])
        self._likes[field] = None if found is None else (found, indices)
        return array


def _named(entry: Any) -> tuple[str, ...]:
    """The mesh axes that an entry of a spec names."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)
