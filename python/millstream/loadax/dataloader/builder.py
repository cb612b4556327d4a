"""`DataLoader`, which builds loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Never, Self, Unpack

from millstream.loadax import _arguments as check
from millstream.loadax._types import B, T
from millstream.loadax.batcher import Batcher, FixedBatchStrategy
from millstream.loadax.dataloader.loader import DistributedDataLoader
from millstream.loadax.dataset.protocol import Indexed

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from millstream._delivery.local_rows import Axes


class DataLoader(Generic[T, B]):
    """Builds loaders: ``DataLoader(batcher).batch_size(2).workers(4).build(dataset)``.

    The defaults are batches of 1 item, one worker and 2 prefetched batches. The keyword
    arguments are those of `DistributedDataLoader`. You can call ``build`` several
    times.
    """

    def __init__(
        self, batcher: Batcher[T, B], *other: Never, **options: Unpack[check.Options]
    ) -> None:
        if other or not isinstance(batcher, Batcher):
            raise TypeError(
                f"batcher must be a Batcher(fn), not {type(batcher).__name__}, and the "
                "only argument. The loader with the arguments dataset and batch_size, "
                "of the third generation of Loadax, is Dataloader."
            )
        check.options("DataLoader", options)
        self._batcher, self._options = batcher, options
        self._batch_size, self._workers, self._prefetch = 1, 1, 2
        self._sharding: Any = None
        self._shard: tuple[int | None, int | None] = None, None

    def batch_size(self, batch_size: int) -> Self:
        """Sets the number of items per batch."""
        self._batch_size = check.whole("batch_size", batch_size, 1)
        return self

    def workers(self, num_workers: int) -> Self:
        """Sets the number of workers that load items; 0 means 1."""
        self._workers = max(check.whole("workers", num_workers, 0), 1)
        return self

    def prefetch(self, factor: int) -> Self:
        """Sets the number of batches to load ahead; 0 means 1."""
        self._prefetch = max(check.whole("prefetch", factor, 0), 1)
        return self

    def shard(
        self,
        mesh: Mesh,
        data_axis_name: Axes = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> Self:
        """Loads only this process's shard of the data, along one or more mesh axes.

        The mesh determines the shard, unless ``num_shards`` and ``shard_id`` are given.
        """
        from millstream.loadax.dataloader.sharding import DistributedShardingStrategy

        self._sharding = DistributedShardingStrategy(mesh, data_axis_name)
        self._shard = shard_id, num_shards
        return self

    def build(self, dataset: Indexed[T]) -> DistributedDataLoader[B]:
        """Builds a loader of ``dataset`` and checks all arguments.

        Raises ``ValueError`` if this process's devices in the mesh cannot share a
        batch's rows equally. Warns if they cannot share those of the last batch.
        """
        loader = DistributedDataLoader(
            dataset,
            self._batcher,
            FixedBatchStrategy(self._batch_size),
            self._workers,
            self._prefetch,
            self._sharding,
            *self._shard,
            **self._options,
        )
        if (blocks := loader.sharding_strategy.blocks()) > 1:
            from millstream._delivery.local_rows import check_divides

            size = self._batch_size
            check_divides(blocks, size, loader.num_items() % size)
        return loader


DataloaderBuilder = DataLoader
