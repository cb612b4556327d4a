"""Which shard of a data set a process loads, and batches that span all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.loadax._arguments import whole
from millstream.loadax._shards import compute_shard_boundaries

if TYPE_CHECKING:
    from jax.sharding import Mesh, NamedSharding

    from millstream.loadax._rows import Axes


class ShardingStrategy(ABC):
    """Decides which items a shard has and where a batch's rows go."""

    def get_shard_indices(
        self, dataset_size: int, shard_id: int, num_shards: int
    ) -> range:
        """The items of one shard; all shards together have every item once."""
        first, end = compute_shard_boundaries(
            num_shards, shard_id, dataset_size, drop_remainder=False
        )
        return range(first, end)

    @abstractmethod
    def needs_sharding(self) -> bool:
        """Whether batches are distributed at all."""

    @abstractmethod
    def named_sharding(self, *names: str | None) -> NamedSharding:
        """The sharding of arrays whose axes go to the mesh axes of these names."""

    @abstractmethod
    def distribute_global_batch(
        self, local: Any, *, data_axis: Axes | None = None
    ) -> Any:
        """The global batch of which ``local`` is this process's part."""

    def shards(self) -> tuple[int, int]:
        """(the number of shards, this process's shard) unless they are given."""
        return 1, 0

    def processes(self) -> list[int]:
        """The processes that load shards of one data set together."""
        return []

    def blocks(self) -> int:
        """Into how many blocks a process's rows are divided, a device's each."""
        return 1

    def layout(self) -> str:
        """How rows are divided, in words that all processes have in common."""
        return type(self).__name__


class NoShardingStrategy(ShardingStrategy):
    """Everything in one place."""

    def needs_sharding(self) -> bool:
        return False

    def named_sharding(self, *names: str | None) -> NamedSharding:
        raise ValueError(f"there is no mesh with axes {names}: build with .shard(mesh)")

    def distribute_global_batch(
        self, local: Any, *, data_axis: Axes | None = None
    ) -> Any:
        """``local`` as it is."""
        if data_axis is not None:
            raise ValueError(
                f"there is no mesh with an axis {data_axis!r}: build with .shard(mesh)"
            )
        return local


class DistributedShardingStrategy(ShardingStrategy):
    """Rows divided along an axis of a mesh, or several; the first unless one is named.

    Every process loads the rows that its own devices hold. Shards are contiguous, and
    the first have a remainder's items; a loader makes them equal.
    """

    def __init__(self, mesh: Mesh, data_shard_axis: Axes | None = None) -> None:
        from millstream.loadax._rows import axes_of, row_sharding

        if not hasattr(mesh, "axis_names"):
            raise TypeError(f"mesh is a jax.sharding.Mesh, not {type(mesh).__name__}")
        self.mesh = mesh
        self._axes = axes_of(mesh, data_shard_axis)
        self._sharding = row_sharding(mesh, self._axes)

    @property
    def data_shard_axis(self) -> tuple[str, ...]:
        """The mesh axes that rows are divided along."""
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
        """Global arrays of this process's rows and those of all others, a pytree.

        Rows are divided along ``data_axis``, or the strategy's own; every process
        calls this with as many rows.
        """
        from millstream.loadax._rows import axes_of, place_tree, row_sharding

        if data_axis is None:
            return place_tree(local, self._sharding, self._axes)
        axes = axes_of(self.mesh, data_axis)
        return place_tree(local, row_sharding(self.mesh, axes), axes)


def ddp_sharding() -> tuple[Mesh, tuple[str, ...]]:
    """A mesh of all devices, the axis ``data``, and its axis names."""
    import jax

    return _mesh((jax.device_count(),), ("data",))


def fsdp_sharding(num_data_shards: int | None = None) -> tuple[Mesh, tuple[str, ...]]:
    """A mesh (``data``, ``model``) of all devices, and its axis names.

    The data axis has ``num_data_shards`` places, or one a process; what is left of the
    devices is the model's.
    """
    import jax

    shards, devices = num_data_shards or jax.process_count(), jax.device_count()
    whole("num_data_shards", shards, 1)
    if devices % shards:
        raise ValueError(f"{devices} devices cannot be divided into {shards} shards")
    return _mesh((shards, devices // shards), ("data", "model"))


def _mesh(
    shape: tuple[int, ...], names: tuple[str, ...]
) -> tuple[Mesh, tuple[str, ...]]:
    import jax
    import numpy as np

    # In the order of processes, so that the rows of one lie together.
    return jax.sharding.Mesh(np.array(jax.devices()).reshape(shape), names), names
