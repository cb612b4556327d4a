"""Converts host arrays to global arrays and back."""

from __future__ import annotations

from enum import Enum
from typing import Any

from jax.sharding import Mesh, PartitionSpec

from millstream._delivery import local_rows

with_sharding_constraint = local_rows.constrained_if_mesh


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
    if _is_replicated(partition):
        return PartitionSpec()
    return PartitionSpec(tuple(local_rows.current_mesh(mesh).axis_names))


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
    mesh = local_rows.current_mesh(mesh)
    if _is_replicated(partition):
        return local_rows.replicated_arrays(host_arrays, mesh)
    return local_rows.RowSharding(mesh, mesh.axis_names).global_arrays(host_arrays)


def global_to_host_array(
    global_arrays: Any, *, partition: DataPartitionType = DataPartitionType.FULL
) -> Any:
    """This process's rows of global arrays, in order, as NumPy arrays.

    This is the inverse of `host_to_global_device_array`. It raises ``ValueError`` for
    an array that is sharded along another axis than the first.
    """
    replicated = _is_replicated(partition)
    return local_rows.local_arrays(global_arrays, replicated=replicated)


def _is_replicated(partition: Any) -> bool:
    if not isinstance(partition, DataPartitionType):
        raise TypeError(f"partition must be a DataPartitionType, not {partition!r}")
    return partition is DataPartitionType.REPLICATED
