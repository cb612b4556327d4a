"""Host arrays to global ones and back, on the mesh that is set."""

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
    """How a global array lies on the devices of a mesh."""

    FULL = "full"
    """Rows are divided over all of them."""
    REPLICATED = "replicated"
    """Every one has all rows."""


def data_partition_type_to_spec(
    partition: DataPartitionType, *, mesh: Mesh | None = None
) -> PartitionSpec:
    """The partition spec that this means on ``mesh``, or on the one that is set."""
    if partition is DataPartitionType.FULL:
        return PartitionSpec(tuple(_set_mesh(mesh).axis_names))
    if partition is DataPartitionType.REPLICATED:
        return PartitionSpec()
    raise TypeError(f"partition is a DataPartitionType, not {partition!r}")


def host_to_global_device_array(
    host_arrays: Any,
    *,
    partition: DataPartitionType = DataPartitionType.FULL,
    mesh: Mesh | None = None,
) -> Any:
    """Global arrays of the rows that each process has, on ``mesh`` or the one set.

    FULL divides rows over all of the mesh's axes, each process giving as many;
    REPLICATED puts them, which all processes have alike, on every device.
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
    """The rows of global arrays that this process holds, in their order, as NumPy.

    The inverse of `host_to_global_device_array`. Arrays divided along other axes than
    the first are refused.
    """
    if not isinstance(partition, DataPartitionType):
        raise TypeError(f"partition is a DataPartitionType, not {partition!r}")

    def local_rows(path: Any, array: Any) -> np.ndarray:
        name = jax.tree_util.keystr(path) or "the array"
        if not isinstance(array, jax.Array):
            raise TypeError(f"{name} is no jax.Array but {type(array).__name__}")
        if partition is DataPartitionType.REPLICATED:
            if not array.is_fully_replicated:
                raise ValueError(f"{name} is not replicated but {array.sharding}")
            return np.asarray(array.addressable_data(0))
        parts: dict[int, np.ndarray] = {}
        for shard in array.addressable_shards:
            if shard.data.shape[1:] != array.shape[1:]:
                raise ValueError(
                    f"{name} is divided along other axes than its first: "
                    f"{array.sharding}"
                )
            first = (shard.index[0].start or 0) if shard.index else 0
            if first not in parts:
                parts[first] = np.asarray(shard.data)
        if array.ndim == 0:
            return parts[0]
        return np.concatenate([parts[first] for first in sorted(parts)])

    return jax.tree_util.tree_map_with_path(local_rows, global_arrays)


def with_sharding_constraint(x: A, shardings: Any) -> A:
    """``jax.lax.with_sharding_constraint``, and ``x`` as it is without a mesh.

    The same where the mesh that is set has one device only.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.size == 1 and not mesh.empty:
        return x
    try:
        return jax.lax.with_sharding_constraint(x, shardings)
    except RuntimeError as error:
        # Only JAX knows of a mesh that was entered as `with mesh:`.
        if mesh.empty and jax_error_says(error, NO_MESH):
            return x
        raise


def _set_mesh(mesh: Mesh | None) -> Mesh:
    found = jax.sharding.get_mesh() if mesh is None else mesh
    if found.empty:
        raise ValueError(
            "there is no mesh: enter `with jax.set_mesh(mesh):` or give mesh="
        )
    return found
