"""Sharding strategies: which items a process loads, and how it makes global batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.loadax._arguments import whole
from millstream.loadax._shards import compute_shard_boundaries

if TYPE_CHECKING:
    from jax.sharding import Mesh, NamedSharding

    from millstream.loadax._rows import Axes


class ShardingStrategy(ABC):
    """Decides which items belong to a shard and which devices hold a batch's rows."""

    def get_shard_indices(
        self, dataset_size: int, shard_id: int, num_shards: int
    ) -> range:
        """The indices of one shard's items. Every item belongs to exactly one shard."""
        first, end = compute_shard_boundaries(
            num_shards, shard_id, dataset_size, drop_remainder=False
        )
        return range(first, end)

    @abstractmethod
    def needs_sharding(self) -> bool:
        """Whether batches are sharded over devices."""

    @abstractmethod
    def named_sharding(self, *names: str | None) -> NamedSharding:
        """A sharding that maps each axis of an array to the mesh axis of that name."""

    @abstractmethod
    def distribute_global_batch(
        self, local: Any, *, data_axis: Axes | None = None
    ) -> Any:
        """The global batch that has ``local`` as this process's rows."""

    def shards(self) -> tuple[int, int]:
        """(the default number of shards, this process's shard)."""
        return 1, 0

    def processes(self) -> list[int]:
        """The processes that load shards of the same data set."""
        return []

    def blocks(self) -> int:
        """The number of blocks into which this process's rows are divided."""
        return 1

    def layout(self) -> str:
        """A description of how rows are divided, the same in all processes."""
        return type(self).__name__


class NoShardingStrategy(ShardingStrategy):
    """No sharding: one process loads all items."""

    def needs_sharding(self) -> bool:
        return False

    def named_sharding(self, *names: str | None) -> NamedSharding:
        raise ValueError(
            f"there is no mesh with axes {names}. Build the loader with .shard(mesh)."
        )

    def distribute_global_batch(
        self, local: Any, *, data_axis: Axes | None = None
    ) -> Any:
        """Returns ``local``."""
        if data_axis is not None:
            raise ValueError(
                f"there is no mesh with an axis {data_axis!r}. Build the loader with "
                ".shard(mesh)."
            )
        return local


class DistributedShardingStrategy(ShardingStrategy):
    """Shards rows along one or more axes of a mesh; by default along the first.

    Every process loads the rows that its devices hold. Shards are contiguous. If items
    do not divide evenly, the first shards have one more; loaders then cut or pad them
    to the same length.
    """

    def __init__(self, mesh: Mesh, data_shard_axis: Axes | None = None) -> None:
        from millstream.loadax._rows import axes_of, row_sharding

        if not hasattr(mesh, "axis_names"):
            raise TypeError(
                f"mesh must be a jax.sharding.Mesh, not {type(mesh).__name__}"
            )
        self.mesh = mesh
        self._axes = axes_of(mesh, data_shard_axis)
        self._sharding = row_sharding(mesh, self._axes)

    @property
    def data_shard_axis(self) -> tuple[str, ...]:
        """The mesh axes along which rows are sharded."""
        return self._axes

    def shards(self) -> tuple[int, int]:
        from millstream.loadax._rows import shards_of

        return shards_of(self._sharding, self._axes)

    def blocks(self) -> int:
        import jax

        from millstream.loadax._rows import block_count, blocks_by_process

        every = block_count(self._sharding, self._axes)
        held = blocks_by_process(self._sharding, every)
        return len(held.get(jax.process_index(), [0]))

    def processes(self) -> list[int]:
        return sorted({device.process_index for device in self.mesh.devices.flat})

    def layout(self) -> str:
        from millstream._run.agreement import layout

        return layout(self.mesh, self._sharding.spec)

    def needs_sharding(self) -> bool:
        return True

    def named_sharding(self, *names: str | None) -> NamedSharding:
        from jax.sharding import NamedSharding, PartitionSpec

        from millstream.loadax._rows import axes_of

        axes_of(self.mesh, [name for name in names if name is not None])
        return NamedSharding(self.mesh, PartitionSpec(*names))

    def distribute_global_batch(
        self, local: Any, *, data_axis: Axes | None = None
    ) -> Any:
        """A pytree of global arrays, made from the rows of all processes.

        Rows are sharded along ``data_axis``, or the strategy's axes. Every process must
        call this with the same number of rows.
        """
        from millstream.loadax._rows import axes_of, place_tree, row_sharding

        if data_axis is None:
            return place_tree(local, self._sharding, self._axes)
        axes = axes_of(self.mesh, data_axis)
        return place_tree(local, row_sharding(self.mesh, axes), axes)


def ddp_sharding() -> tuple[Mesh, tuple[str, ...]]:
    """A mesh of all devices along one axis, ``data``, and its axis names."""
    import jax

    return _mesh((jax.device_count(),), ("data",))


def fsdp_sharding(num_data_shards: int | None = None) -> tuple[Mesh, tuple[str, ...]]:
    """A mesh of all devices with the axes ``data`` and ``model``, and its axis names.

    The length of the data axis is ``num_data_shards``, or the number of processes.
    """
    import jax

    shards, devices = num_data_shards or jax.process_count(), jax.device_count()
    whole("num_data_shards", shards, 1)
    if devices % shards:
        raise ValueError(
            f"{devices} devices cannot be divided into {shards} shards. Choose a "
            f"num_data_shards that divides {devices}."
        )
    return _mesh((shards, devices // shards), ("data", "model"))


def _mesh(
    shape: tuple[int, ...], names: tuple[str, ...]
) -> tuple[Mesh, tuple[str, ...]]:
    import jax
    import numpy as np

    # jax.devices() is ordered by process, so each process's rows are contiguous.
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(shape), names), names
