"""Global arrays from the rows that each process has, and back.

A block is a range of rows that one or more devices hold. All blocks of a sharding have
the same size.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import keystr, tree_map_with_path

from millstream._core.jax_errors import NO_MESH, jax_error_says
from millstream._run.agreement import layout

T = TypeVar("T")

Axes = str | Sequence[str] | None
"""Names of mesh axes. None means the first axis."""


def axes_of(mesh: Mesh, axes: Axes) -> tuple[str, ...]:
    """Returns the names of mesh axes as a tuple. None means the first axis.

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


def check_divides(blocks: int, batch_size: int, last: int) -> None:
    """Raises ``ValueError`` unless ``blocks`` blocks can share a batch's rows.

    Warns if they cannot share the rows of the last batch, of which there are ``last``.
    """
    over = f"cannot be divided over the {blocks} blocks of rows of this process"
    if batch_size % blocks:
        raise ValueError(
            f"a batch of {batch_size} items {over}. Choose a batch_size that is a "
            f"multiple of {blocks}."
        )
    if last % blocks:
        text = f"the last batch has {last} items, which {over}. Use drop_last=True."
        warnings.warn(text, UserWarning, stacklevel=3)


class RowSharding:
    """Splits the rows of batches over axes of a mesh, by default over the first.

    The rows are copied over the other axes.
    """

    def __init__(self, mesh: Mesh, axes: Axes = None) -> None:
        if not hasattr(mesh, "axis_names"):
            found = type(mesh).__name__
            raise TypeError(f"mesh must be a jax.sharding.Mesh, not {found}")
        self.mesh = mesh
        self.axes = axes_of(mesh, axes)
        self.sharding = NamedSharding(mesh, PartitionSpec(self.axes))
        self.every_block = math.prod(mesh.shape[name] for name in self.axes)

    def processes(self) -> list[int]:
        """Returns the processes whose devices are in the mesh."""
        return sorted({device.process_index for device in self.mesh.devices.flat})

    def named_sharding(self, *names: str | None) -> NamedSharding:
        """Returns a sharding that maps the axes of an array to these mesh axes."""
        axes_of(self.mesh, [name for name in names if name is not None])
        return NamedSharding(self.mesh, PartitionSpec(*names))

    def layout(self) -> str:
        """Describes how rows are split; the same text in all processes."""
        return layout(self.mesh, self.sharding.spec)

    def blocks_by_process(self) -> dict[int, tuple[int, ...]]:
        """Returns the blocks that each process holds, in ascending order."""
        held: dict[int, set[int]] = {}
        places: Any = self.sharding.devices_indices_map((self.every_block,))
        for device, index in places.items():
            held.setdefault(device.process_index, set()).add(index[0].start or 0)
        return {process: tuple(sorted(blocks)) for process, blocks in held.items()}

    def blocks(self) -> int:
        """Returns the number of blocks that this process holds."""
        return len(self.blocks_by_process().get(jax.process_index(), ()))

    def shards(self) -> tuple[int, int]:
        """Returns the number of shards of the data, and the shard of this process.

        Processes that hold the same rows load the same shard. Shards are numbered in
        the order of their rows. Raises ``ValueError`` if two processes share only some
        of their rows, or if a process's rows are not contiguous.
        """
        held = self.blocks_by_process()
        groups = sorted(set(held.values()))
        flat = [block for group in groups for block in group]
        if flat != sorted(set(flat)) or len({len(group) for group in groups}) > 1:
            raise ValueError(
                f"the mesh axes {self.axes} do not give each process an equal, "
                f"contiguous range of rows. The blocks of rows by process are {held}. "
                "Order the mesh's devices by process."
            )
        process = jax.process_index()
        if process not in held:
            raise ValueError(
                f"process {process} has no device in the mesh. Add one of its devices, "
                "or do not build the loader in this process."
            )
        return len(groups), groups.index(held[process])

    def global_arrays(self, tree: Any) -> Any:
        """Returns global arrays that have the leaves of ``tree`` as local rows.

        Every process passes the same number of rows. Raises ``ValueError`` if a leaf
        has no rows, or if this process's devices cannot share them equally.
        """
        mine = self.blocks()

        def place(path: Any, leaf: Any) -> jax.Array:
            shape, name = np.shape(leaf), keystr(path)
            if not shape:
                raise ValueError(
                    f"the leaf {name or 'of the batch'} is a {type(leaf).__name__} "
                    "without rows. A batch to distribute must consist of arrays with "
                    "one row per item, as Batcher(jnp.stack) makes them."
                )
            if not mine or shape[0] % mine:
                raise ValueError(
                    f"{name or 'the batch'}: {shape[0]} rows of shape {shape[1:]} "
                    f"cannot be divided over {mine} blocks of rows, which this "
                    f"process's devices hold along the mesh axes {self.axes}. Choose a "
                    f"batch size that is a multiple of {mine}, and use drop_last=True."
                )
            if mine == self.every_block:  # this process has all rows
                return jax.device_put(leaf, self.sharding)
            whole = (shape[0] // mine * self.every_block, *shape[1:])
            return jax.make_array_from_process_local_data(
                self.sharding, np.asarray(leaf), whole
            )

        return tree_map_with_path(place, tree)


def replicated_arrays(tree: Any, mesh: Mesh) -> Any:
    """Returns copies of host arrays, which every process has, on all devices."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def replicate(leaf: Any) -> jax.Array:
        if len(mesh.local_devices) == mesh.size:
            return jax.device_put(leaf, sharding)
        local = np.asarray(leaf)
        return jax.make_array_from_callback(local.shape, sharding, lambda i: local[i])

    return jax.tree.map(replicate, tree)


def local_arrays(tree: Any, *, replicated: bool = False) -> Any:
    """Returns this process's rows of global arrays, in order, as NumPy arrays.

    Raises ``ValueError`` for an array that is split along another axis than the first
    or, with ``replicated``, along any axis.
    """

    def local(path: Any, array: Any) -> np.ndarray:
        name = keystr(path) or "the array"
        if not isinstance(array, jax.Array):
            raise TypeError(f"{name} must be a jax.Array, not {type(array).__name__}")
        if replicated and not array.is_fully_replicated:
            raise ValueError(
                f"{name} must be fully replicated, not {array.sharding}. Use "
                "DataPartitionType.FULL for sharded arrays."
            )
        blocks: dict[int, np.ndarray] = {}
        for shard in array.addressable_shards:
            if shard.data.shape[1:] != array.shape[1:]:
                raise ValueError(
                    f"{name} must be sharded along its first axis only, not "
                    f"{array.sharding}"
                )
            first = (shard.index[0].start or 0) if shard.index else 0
            blocks.setdefault(first, np.asarray(shard.data))
        if array.ndim == 0:
            return blocks[0]
        return np.concatenate([blocks[first] for first in sorted(blocks)])

    return tree_map_with_path(local, tree)


def current_mesh(mesh: Mesh | None = None) -> Mesh:
    """Returns ``mesh``, or the mesh that `jax.set_mesh` has set."""
    found = jax.sharding.get_mesh() if mesh is None else mesh
    if found.empty:
        raise ValueError(
            "there is no mesh: enter `with jax.set_mesh(mesh):` or pass mesh="
        )
    return found


def constrained_if_mesh(x: T, shardings: Any) -> T:
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
