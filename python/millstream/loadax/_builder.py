"""`DataLoader`, which builds loaders."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from millstream.loadax._arguments import whole
from millstream.loadax._batching import Batcher, FixedBatchStrategy
from millstream.loadax._dataset import Indexed
from millstream.loadax._loaders import DistributedDataLoader
from millstream.loadax._sharding import (
    DistributedShardingStrategy,
    NoShardingStrategy,
    ShardingStrategy,
)

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from millstream.loadax._rows import Axes

T = TypeVar("T")
B = TypeVar("B")


class DataLoader(Generic[T, B]):
    """Builds loaders: ``DataLoader(batcher).batch_size(2).workers(4).build(dataset)``.

    The defaults are batches of 1 item, one worker and 2 prefetched batches. The keyword
    arguments are those of `DistributedDataLoader`. You can call ``build`` several
    times.
    """

    def __init__(
        self,
        batcher: Batcher[T, B],
        *,
        drop_last: bool = False,
        remainder: str = "drop",
        on_error: str = "raise",
        worker_kind: str = "thread",
    ) -> None:
        if not isinstance(batcher, Batcher):
            raise TypeError(
                f"batcher must be a Batcher(fn), not {type(batcher).__name__}. For "
                "lists of items use Dataloader(dataset, batch_size)."
            )
        self._batcher = batcher
        self._drop_last, self._remainder = drop_last, remainder
        self._on_error, self._worker_kind = on_error, worker_kind
        self._batch_size, self._workers, self._prefetch = 1, 1, 2
        self._sharding: ShardingStrategy = NoShardingStrategy()
        self._num_shards: int | None = None
        self._shard_id: int | None = None

    def batch_size(self, batch_size: int) -> Self:
        """Sets the number of items per batch."""
        self._batch_size = whole("batch_size", batch_size, 1)
        return self

    def workers(self, num_workers: int) -> Self:
        """Sets the number of workers that load items; 0 means 1."""
        self._workers = max(whole("workers", num_workers, 0), 1)
        return self

    def prefetch(self, factor: int) -> Self:
        """Sets the number of batches to load ahead; 0 means 1."""
        self._prefetch = max(whole("prefetch", factor, 0), 1)
        return self

    def shard(
        self,
        mesh: Mesh,
        data_axis_name: Axes | None = None,
        num_shards: int | None = None,
        shard_id: int | None = None,
    ) -> Self:
        """Loads only this process's shard of the data, along one or more mesh axes.

        The mesh determines the shard, unless ``num_shards`` and ``shard_id`` are given.
        """
        self._sharding = DistributedShardingStrategy(mesh, data_axis_name)
        self._num_shards, self._shard_id = num_shards, shard_id
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
            self._shard_id,
            self._num_shards,
            drop_last=self._drop_last,
            remainder=self._remainder,
            on_error=self._on_error,
            worker_kind=self._worker_kind,
        )
        if (blocks := self._sharding.blocks()) > 1:
            self._check_rows(loader.num_items(), blocks)
        return loader

    def _check_rows(self, items: int, blocks: int) -> None:
        over = f"cannot be divided over the {blocks} blocks of rows of this process"
        if self._batch_size % blocks:
            raise ValueError(
                f"a batch of {self._batch_size} items {over}. Choose a batch_size that "
                f"is a multiple of {blocks}."
            )
        if (last := items % self._batch_size) % blocks and not self._drop_last:
            warnings.warn(
                f"the last batch has {last} items, which {over}. "
                "DataLoader(batcher, drop_last=True) leaves them out.",
                UserWarning,
                stacklevel=3,
            )


DataloaderBuilder = DataLoader
