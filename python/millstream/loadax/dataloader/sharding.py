"""Sharding strategies: which items a process loads, and how it makes global batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from jax.sharding import Mesh, NamedSharding

from millstream._delivery.local_rows import Axes, RowSharding
from millstream.loadax.dataset.transform import compute_shard_boundaries


class ShardingStrategy(ABC):
    """Decides which items belong to a shard and which devices hold a batch's rows."""

    def get_shard_indices(
        self, dataset_size: int, shard_id: int, num_shards: int
    ) -> range:
        """The indices of one shard's items. Every item belongs to exactly one shard."""
        bounds = compute_shard_boundaries(
            num_shards, shard_id, dataset_size, drop_remainder=False
        )
        return range(*bounds)

    @abstractmethod
    def needs_sharding(self) -> bool:
        """Whether batches are sharded over devices."""

    @abstractmethod
    def named_sharding(self, *names: str | None) -> NamedSharding:
        """A sharding that maps each axis of an array to the mesh axis of that name."""

    @abstractmethod
    def distribute_global_batch(self, local: Any, *, data_axis: Axes = None) -> Any:
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

    def distribute_global_batch(self, local: Any, *, data_axis: Axes = None) -> Any:
        """Returns ``local``."""
        return local if data_axis is None else self.named_sharding(*data_axis)


class DistributedShardingStrategy(RowSharding, ShardingStrategy):
    """Shards rows along one or more axes of a mesh; by default along the first.

    Every process loads the rows that its devices hold. Shards are contiguous. If items
    do not divide evenly, the first shards have one more; loaders then cut or pad them
    to the same length.
    """

    def __init__(self, mesh: Mesh, data_shard_axis: Axes = None) -> None:
        super().__init__(mesh, data_shard_axis)
        self.data_shard_axis = self.axes

    def needs_sharding(self) -> bool:
        return True

    def distribute_global_batch(self, local: Any, *, data_axis: Axes = None) -> Any:
        """A pytree of global arrays, made from the rows of all processes.

        Rows are sharded along ``data_axis``, or the strategy's axes. Every process must
        call this with the same number of rows.
        """
        rows = self if data_axis is None else RowSharding(self.mesh, data_axis)
        return rows.global_arrays(local)
