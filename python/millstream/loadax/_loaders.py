"""Loaders: iterables of batches. Several iterators of one loader are independent."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from millstream._workers.executor import Executor
from millstream.loadax._arguments import ArgumentError, one_of, shard_of, whole
from millstream.loadax._batching import Batcher, BatchStrategy, FixedBatchStrategy
from millstream.loadax._dataset import Dataset, Indexed, dataset_of
from millstream.loadax._loading import (
    BatchAssembler,
    BatchIterator,
    Fetch,
    WorkerOptions,
    items_by_workers,
    items_one_by_one,
)
from millstream.loadax._sharding import NoShardingStrategy, ShardingStrategy
from millstream.loadax._shards import equal_positions

T = TypeVar("T")
B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


class Loader(Generic[B_co]):
    """An iterable of batches with a length. It has no position of its own.

    Every ``iter()`` starts at the first batch. ``at_epoch(n)`` returns the same loader
    over ``dataset.at_epoch(n)``.
    """

    _worker_options: WorkerOptions | None = None
    _refuse_none = True

    def __init__(
        self,
        dataset: Indexed[Any],
        batcher: Batcher[Any, B_co],
        strategy: BatchStrategy[Any],
        *,
        drop_last: bool,
        on_error: str,
    ) -> None:
        if not isinstance(batcher, Batcher):
            raise TypeError(f"batcher must be a Batcher, not {type(batcher).__name__}")
        if not isinstance(strategy, BatchStrategy):
            raise TypeError(
                f"strategy must be a BatchStrategy, not {type(strategy).__name__}"
            )
        self._dataset: Dataset[Any] = dataset_of(dataset)
        self._assembler = BatchAssembler(strategy, batcher, bool(drop_last))
        self._skip = one_of("on_error", on_error, ("raise", "skip")) == "skip"
        self._executor: Executor | None = None

    @property
    def dataset(self) -> Dataset[Any]:
        """The data set whose items are loaded."""
        return self._dataset

    def __iter__(self) -> BatchIterator[B_co]:
        return BatchIterator(self._items(), self._assembler, self.num_items())

    def __len__(self) -> int:
        return self.num_batches()

    def num_items(self) -> int:
        """The number of items of one iteration, not counting a dropped last batch."""
        count, assembler = len(self._positions()), self._assembler
        strategy, cut = assembler.strategy, assembler.drop_last and not self._skip
        if cut and isinstance(strategy, FixedBatchStrategy):
            return count - count % strategy.batch_size
        return count

    def num_batches(self) -> int:
        """The number of batches of one iteration, if no item is skipped."""
        items, assembler = self.num_items(), self._assembler
        return assembler.strategy.num_batches(items, drop_last=assembler.drop_last)

    def at_epoch(self, epoch: int) -> Self:
        """The same loader over ``dataset.at_epoch(epoch)``."""
        loader = copy.copy(self)
        loader._dataset = self._dataset.at_epoch(whole("epoch", epoch, 0))
        loader._executor = None
        return loader

    def close(self) -> None:
        """Ends the worker processes, if any. The next iteration starts new ones."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def _positions(self) -> Sequence[int]:
        return range(len(self._dataset))

    def _items(self) -> Generator[Any, None, None]:
        """The items of one iteration. Workers start when the first one is requested."""
        fetch = Fetch(self._dataset, self._skip, self._refuse_none)
        positions, count = self._positions(), self.num_items()
        options, rows = self._worker_options, self._assembler.strategy.size
        if options is None:
            yield from items_one_by_one(fetch, positions, count)
        elif options.kind == "process":
            # Processes are slow to start, so they stay for the next iteration.
            if self._executor is None:
                self._executor = options.open(fetch, rows)
            try:
                ahead = options.ahead(rows)
                yield from items_by_workers(
                    self._executor, positions, count, rows, ahead
                )
            except Exception:
                self.close()  # the processes may be in any state
                raise
        elif count:
            executor = options.open(fetch, rows)
            try:
                ahead = options.ahead(rows)
                yield from items_by_workers(executor, positions, count, rows, ahead)
            finally:
                executor.close()
                del executor


class NaiveDataLoader(Loader[B]):
    """Loads items one by one on the calling thread, when their batch is requested."""

    def __init__(
        self,
        dataset: Indexed[T],
        batcher: Batcher[T, B],
        strategy: BatchStrategy[T],
        *,
        drop_last: bool = False,
        on_error: str = "raise",
    ) -> None:
        super().__init__(
            dataset, batcher, strategy, drop_last=drop_last, on_error=on_error
        )


class DistributedDataLoader(Loader[B]):
    """Loads one shard of a data set ahead, with workers.

    ``sharding_strategy`` determines this process's shard, unless both ``shard_id`` and
    ``num_shards`` are given. All shards load the same number of items. If the items do
    not divide evenly, ``remainder="drop"`` leaves out the last item of the larger
    shards, and ``"pad"`` makes the smaller shards load an item of another shard too.

    ``num_workers`` threads, or processes with ``worker_kind="process"``, load
    ``prefetch_factor`` batches ahead, and at least one item each. An item that fails or
    is None raises an error. With ``on_error="skip"`` it is left out with a warning.
    """

    def __init__(
        self,
        dataset: Indexed[T],
        batcher: Batcher[T, B],
        strategy: BatchStrategy[T],
        num_workers: int,
        prefetch_factor: int,
        sharding_strategy: ShardingStrategy,
        shard_id: int | None = None,
        num_shards: int | None = None,
        *,
        drop_last: bool = False,
        remainder: str = "drop",
        on_error: str = "raise",
        worker_kind: str = "thread",
    ) -> None:
        super().__init__(
            dataset, batcher, strategy, drop_last=drop_last, on_error=on_error
        )
        self._worker_options = WorkerOptions(
            whole("num_workers", num_workers, 1),
            one_of("worker_kind", worker_kind, ("thread", "process")),
            whole("prefetch_factor", prefetch_factor, 1),
        )
        if not isinstance(sharding_strategy, ShardingStrategy):
            raise TypeError(
                "sharding_strategy must be a ShardingStrategy, "
                f"not {type(sharding_strategy).__name__}"
            )
        if (shard_id is None) != (num_shards is None):
            raise ArgumentError(
                "Either both or neither of shard_id and num_shards must be given; "
                f"found {shard_id} and {num_shards}"
            )
        self.sharding_strategy = sharding_strategy
        self._remainder = one_of("remainder", remainder, ("drop", "pad"))
        from_strategy = shard_id is None
        if shard_id is None:
            num_shards, shard_id = sharding_strategy.shards()
        self._num_shards, self._shard_id = shard_of(num_shards, shard_id)
        if self._skip and self._num_shards > 1:
            raise ArgumentError(
                f"on_error='skip' cannot be combined with {self._num_shards} shards, "
                "because the shards could end up with different numbers of batches. "
                "Use on_error='raise'."
            )
        if from_strategy and len(sharding_strategy.processes()) > 1:
            self._check_agreement()

    def _check_agreement(self) -> None:
        """Raises ``ValueError`` unless all processes have the same arguments."""
        from millstream._run.agreement import agree

        strategy = self.sharding_strategy
        mine = {
            "samples": len(self._dataset),
            "batch_size": self._assembler.strategy.size,
            "drop_last": self._assembler.drop_last,
            "remainder": self._remainder,
            "shards": self._num_shards,
            "sharding": strategy.layout(),
        }
        agree(mine, strategy.processes())

    @property
    def num_shards(self) -> int:
        """The number of shards of the data set."""
        return self._num_shards

    @property
    def shard_id(self) -> int:
        """The number of the shard that this loader loads."""
        return self._shard_id

    def _positions(self) -> Sequence[int]:
        size = len(self._dataset)
        own = self.sharding_strategy.get_shard_indices(
            size, self._shard_id, self._num_shards
        )
        return equal_positions(own, self._num_shards, size, remainder=self._remainder)


class Dataloader(DistributedDataLoader[B]):
    """Batches that are lists of ``batch_size`` items.

    Without workers and prefetching, items are loaded on the calling thread when their
    batch is requested. With ``prefetch_factor`` alone, one worker loads them ahead. An
    item may be None.

    With a batcher and a strategy in place of ``batch_size`` it behaves like
    `DistributedDataLoader`.
    """

    @overload
    def __init__(
        self: Dataloader[list[T]],
        dataset: Indexed[T],
        batch_size: int,
        num_workers: int = 0,
        prefetch_factor: int = 0,
        *,
        drop_last: bool = False,
        on_error: str = "raise",
        worker_kind: str = "thread",
    ) -> None: ...

    @overload
    def __init__(
        self,
        dataset: Indexed[T],
        batcher: Batcher[T, B],
        strategy: BatchStrategy[T],
        num_workers: int,
        prefetch_factor: int,
        sharding_strategy: ShardingStrategy,
        shard_id: int | None = None,
        num_shards: int | None = None,
        *,
        drop_last: bool = False,
        remainder: str = "drop",
        on_error: str = "raise",
        worker_kind: str = "thread",
    ) -> None: ...

    def __init__(self, dataset: Indexed[Any], *args: Any, **kwargs: Any) -> None:
        if "batcher" in kwargs or (args and isinstance(args[0], Batcher)):
            super().__init__(dataset, *args, **kwargs)
        else:
            self._init_with_lists(dataset, *args, **kwargs)

    def _init_with_lists(
        self,
        dataset: Indexed[Any],
        batch_size: int,
        num_workers: int = 0,
        prefetch_factor: int = 0,
        *,
        drop_last: bool = False,
        on_error: str = "raise",
        worker_kind: str = "thread",
    ) -> None:
        workers = whole("num_workers", num_workers, 0)
        prefetch = whole("prefetch_factor", prefetch_factor, 0)
        super().__init__(
            dataset,
            Batcher(_unchanged),
            FixedBatchStrategy(batch_size),
            max(workers, 1),
            max(prefetch, 1),
            NoShardingStrategy(),
            drop_last=drop_last,
            on_error=on_error,
            worker_kind=worker_kind,
        )
        self._refuse_none = False
        self._worker_options = None
        if workers or prefetch:
            self._worker_options = WorkerOptions(max(workers, 1), worker_kind, prefetch)


def _unchanged(items: Any) -> Any:
    return items
