"""Which rows of a batch each process and device holds, for any mesh.

A block is a range of rows that one or more devices hold; blocks have equal sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Axes = str | Sequence[str]


def axes_of(mesh: Mesh, axes: Axes | None) -> tuple[str, ...]:
    """The axis names as a tuple; None means the first axis.

    Raises ``ValueError`` for an axis that the mesh does not have.
    """
    if axes is None:
        return (mesh.axis_names[0],)
    names = (axes,) if isinstance(axes, str) else tuple(axes)
    for name in names:
        if name not in mesh.axis_names:
            raise ValueError(
                f"there is no mesh axis {name!r}; the axes are "
                f"{', '.join(map(repr, mesh.axis_names))}"
            )
    return names


def row_sharding(mesh: Mesh, axes: tuple[str, ...]) -> NamedSharding:
    """Shards rows over ``axes`` and replicates them over the other axes."""
    return NamedSharding(mesh, PartitionSpec(axes))


def block_count(sharding: NamedSharding, axes: tuple[str, ...]) -> int:
    """The number of blocks into which the rows are divided."""
    return int(np.prod([sharding.mesh.shape[name] for name in axes], dtype=int))


def blocks_by_process(
    sharding: NamedSharding, blocks: int
) -> dict[int, tuple[int, ...]]:
    """The blocks that each process of the mesh holds, in ascending order."""
    held: dict[int, set[int]] = {}
    places: dict[Any, Any] = dict(sharding.devices_indices_map((blocks,)))
    for device, index in places.items():
        held.setdefault(device.process_index, set()).add(index[0].start or 0)
    return {process: tuple(sorted(held[process])) for process in held}


def shards_of(sharding: NamedSharding, axes: tuple[str, ...]) -> tuple[int, int]:
    """(the number of shards of the data, this process's shard).

    Processes that hold the same rows load the same shard. Shards are numbered in the
    order of their rows. Raises ``ValueError`` if two processes share only some of their
    rows, or if a process's rows are not contiguous.
    """
    held = blocks_by_process(sharding, block_count(sharding, axes))
    groups = sorted(set(held.values()))
    flat = [block for group in groups for block in group]
    sizes = {len(group) for group in groups}
    if flat != sorted(set(flat)) or len(sizes) > 1:
        raise ValueError(
            f"the mesh axes {axes} do not give each process an equal, contiguous range "
            f"of rows. The blocks of rows by process are {held}. Order the mesh's "
            "devices by process."
        )
    process = jax.process_index()
    if process not in held:
        raise ValueError(
            f"process {process} has no device in the mesh. Add one of its devices, or "
            "do not build the loader in this process."
        )
    return len(groups), groups.index(held[process])


def place_rows(leaf: Any, sharding: NamedSharding, axes: tuple[str, ...]) -> jax.Array:
    """The global array that has ``leaf`` as this process's rows.

    Every process passes the same number of rows. Raises ``ValueError`` if this
    process's devices cannot share them equally.
    """
    rows = np.shape(leaf)[0]
    blocks = block_count(sharding, axes)
    held = blocks_by_process(sharding, blocks).get(jax.process_index(), ())
    if not held or rows % len(held):
        raise ValueError(
            f"{rows} rows of shape {np.shape(leaf)[1:]} cannot be divided over "
            f"{len(held)} blocks of rows, which this process's devices hold along the "
            f"mesh axes {axes}. Choose a batch size that is a multiple of {len(held)}, "
            "and use drop_last=True."
        )
    if len(held) == blocks:  # this process holds all rows
        return jax.device_put(leaf, sharding)
    each = rows // len(held)
    shape = (each * blocks, *np.shape(leaf)[1:])
    local, devices = np.asarray(leaf), []
    shards = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        assert index is not None
        first = held.index((index[0].start or 0) // max(each, 1)) * each
        shards.append(local[first : first + each])
        devices.append(device)
    placed = jax.device_put(shards, devices)
    return jax.make_array_from_single_device_arrays(shape, sharding, placed)


def place_tree(tree: Any, sharding: NamedSharding, axes: tuple[str, ...]) -> Any:
    """`place_rows` for every leaf; ``ValueError`` if a leaf has no rows."""

    def place(path: Any, leaf: Any) -> jax.Array:
        if np.ndim(leaf) == 0:
            raise ValueError(
                f"the leaf {jax.tree_util.keystr(path) or 'of the batch'} is a "
                f"{type(leaf).__name__} without rows. A batch to distribute must "
                "consist of arrays with one row per item, as Batcher(jnp.stack) "
                "makes them."
            )
        try:
            return place_rows(leaf, sharding, axes)
        except ValueError as error:
            name = jax.tree_util.keystr(path)
            raise ValueError(f"{name}: {error}" if name else str(error)) from None

    return jax.tree_util.tree_map_with_path(place, tree)
