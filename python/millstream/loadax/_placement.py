"""Converts host arrays to global arrays and back."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from millstream._core.jax_errors import NO_MESH, jax_error_says
from millstream.loadax._rows import place_tree, row_sharding

A = TypeVar("A")


class DataPartitionType(Enum):
    """How a global array is distributed over the devices of a mesh."""

    FULL = "full"
    """Rows are sharded over all devices."""
    REPLICATED = "replicated"
    """Every device has all rows."""


def data_partition_type_to_spec(
    partition: DataPartitionType, *, mesh: Mesh | None = None
) -> PartitionSpec:
    """The ``PartitionSpec`` of ``partition`` on ``mesh`` or the current mesh."""
    if partition is DataPartitionType.FULL:
        return PartitionSpec(tuple(_set_mesh(mesh).axis_names))
    if partition is DataPartitionType.REPLICATED:
        return PartitionSpec()
    raise TypeError(f"partition must be a DataPartitionType, not {partition!r}")


def host_to_global_device_array(
    host_arrays: Any,
    *,
    partition: DataPartitionType = DataPartitionType.FULL,
    mesh: Mesh | None = None,
) -> Any:
    """Global arrays from the rows of each process, on ``mesh`` or the current mesh.

    With FULL, rows are sharded over all axes of the mesh, and every process passes the
    same number of rows. With REPLICATED, every process passes the same rows, and every
    device gets all of them.
    """
    mesh = _set_mesh(mesh)
    spec = data_partition_type_to_spec(partition, mesh=mesh)
    if partition is DataPartitionType.FULL:
        axes = tuple(mesh.axis_names)
        return place_tree(host_arrays, row_sharding(mesh, axes), axes)
    sharding = NamedSharding(mesh, spec)

    def replicate(leaf: Any) -> jax.Array:
        if len(mesh.local_devices) == mesh.size:
            return jax.device_put(leaf, sharding)
        local = np.asarray(leaf)
        return jax.make_array_from_callback(
            local.shape, sharding, lambda index: local[index]
        )

    return jax.tree.map(replicate, host_arrays)


def global_to_host_array(
    global_arrays: Any, *, partition: DataPartitionType = DataPartitionType.FULL
) -> Any:
    """This process's rows of global arrays, in order, as NumPy arrays.

    This is the inverse of `host_to_global_device_array`. It raises ``ValueError`` for
    an array that is sharded along another axis than the first.
    """
    if not isinstance(partition, DataPartitionType):
        raise TypeError(f"partition must be a DataPartitionType, not {partition!r}")

    def local_rows(path: Any, array: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path) or "the array"
        if not isinstance(array, jax.Array):
            raise TypeError(f"{name} must be a jax.Array, not {type(array).__name__}")
        if partition is DataPartitionType.REPLICATED:
            if not array.is_fully_replicated:
                raise ValueError(
                    f"{name} must be fully replicated, not {array.sharding}. Use "
                    "DataPartitionType.FULL for sharded arrays."
                )
            return np.asarray(array.addressable_data(0))
        blocks: dict[int, np.ndarray] = {}
        for shard in array.addressable_shards:
            if shard.data.shape[1:] != array.shape[1:]:
                raise ValueError(
                    f"{name} must be sharded along its first axis only, not "
                    f"{array.sharding}"
                )
            first = (shard.index[0].start or 0) if shard.index else 0
            if first not in blocks:
                blocks[first] = np.asarray(shard.data)
        if array.ndim == 0:
            return blocks[0]
        return np.concatenate([blocks[first] for first in sorted(blocks)])

    return jax.tree_util.tree_map_with_path(local_rows, global_arrays)


def with_sharding_constraint(x: A, shardings: Any) -> A:
    """``jax.lax.with_sharding_constraint``, or ``x`` if no constraint is needed.

    A constraint is not needed without a mesh, or if the current mesh has one device.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size == 1 and not mesh.empty:
        return x
    try:
        return jax.lax.with_sharding_constraint(x, shardings)
    except RuntimeError as error:
        # get_abstract_mesh() does not see a mesh entered with `with mesh:`.
        if mesh.empty and jax_error_says(error, NO_MESH):
            return x
        raise


def _set_mesh(mesh: Mesh | None) -> Mesh:
    found = jax.sharding.get_mesh() if mesh is None else mesh
    if found.empty:
        raise ValueError(
            "there is no mesh: enter `with jax.set_mesh(mesh):` or pass mesh="
        )
    return found
