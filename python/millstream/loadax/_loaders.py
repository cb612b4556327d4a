"""Loaders: descriptions of a walk over a data set, any number of which may go on."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from millstream._workers.executor import Workshop
from millstream.loadax._arguments import ArgumentError, chosen, shard_of, whole
from millstream.loadax._batching import Batcher, BatchStrategy, FixedBatchStrategy
from millstream.loadax._dataset import Dataset, Indexed, dataset_of
from millstream.loadax._loading import (
    BatchIterator,
    Crew,
    Fetch,
    Gathering,
    plain_items,
    worked_items,
)
from millstream.loadax._sharding import NoShardingStrategy, ShardingStrategy
from millstream.loadax._shards import equal_positions

T = TypeVar("T")
B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


class Loader(Generic[B_co]):
    """What all loaders are: an iterable of batches with a length, and no state.

    Every ``iter()`` is a walk of its own from the first batch. ``at_epoch(n)`` is the
    same loader over what data sets in a drawn order have in epoch n.
    """

    _crew: Crew | None = None
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
            raise TypeError(f"batcher is a Batcher, not {type(batcher).__name__}")
        if not isinstance(strategy, BatchStrategy):
            raise TypeError(
                f"strategy is a BatchStrategy, not {type(strategy).__name__}"
            )
        self._dataset: Dataset[Any] = dataset_of(dataset)
        self._gathering = Gathering(strategy, batcher, bool(drop_last))
        self._skip = chosen("on_error", on_error, ("raise", "skip")) == "skip"
        self._kept: Workshop | None = None

    @property
    def dataset(self) -> Dataset[Any]:
        """The data set that is loaded."""
        return self._dataset

    def __iter__(self) -> BatchIterator[B_co]:
        return BatchIterator(self._items(), self._gathering, self.num_items())

    def __len__(self) -> int:
        return self.num_batches()

    def num_items(self) -> int:
        """Items that one walk loads: not those of a batch that is dropped."""
        count, gathering = len(self._positions()), self._gathering
        strategy, cut = gathering.strategy, gathering.drop_last and not self._skip
        if cut and isinstance(strategy, FixedBatchStrategy):
            return count - count % strategy.batch_size
        return count

    def num_batches(self) -> int:
        """Batches of one walk; fewer where items are skipped."""
        items, gathering = self.num_items(), self._gathering
        return gathering.strategy.num_batches(items, drop_last=gathering.drop_last)

    def at_epoch(self, epoch: int) -> Self:
        """The same loader over the data as ``epoch`` has it."""
        loader = copy.copy(self)
        loader._dataset = self._dataset.at_epoch(whole("epoch", epoch, 0))
        loader._kept = None
        return loader

    def close(self) -> None:
        """Ends the worker processes, if there are any; a next walk starts new ones."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _positions(self) -> Sequence[int]:
        return range(len(self._dataset))

    def _items(self) -> Generator[Any, None, None]:
        """The items of a walk; nothing starts before the first is asked for."""
        fetch = Fetch(self._dataset, self._skip, self._refuse_none)
        positions, count = self._positions(), self.num_items()
        crew, rows = self._crew, self._gathering.strategy.size
        if crew is None:
            yield from plain_items(fetch, positions, count)
        elif crew.kind == "process":  # dear to start: they stay for the next walk
            if self._kept is None:
                self._kept = crew.open(fetch, rows)
            try:
                ahead = crew.ahead(rows)
                yield from worked_items(self._kept, positions, count, rows, ahead)
            except Exception:
                self.close()  # they may be in any state
                raise
        elif count:
            workshop = crew.open(fetch, rows)
            try:
                ahead = crew.ahead(rows)
                yield from worked_items(workshop, positions, count, rows, ahead)
            finally:
                workshop.close()
                del workshop


class NaiveDataLoader(Loader[B]):
    """Loads every item when its batch is asked for, in the caller's thread."""

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
    """Loads one shard of a data set ahead of its reader, by workers.

    The shard is this process's by ``sharding_strategy``, unless both ``shard_id`` and
    ``num_shards`` are given. All shards have as many items: with ``remainder="drop"``
    the first ones leave one out where items remain, with ``"pad"`` the last ones load
    one of another shard once more.

    ``num_workers`` threads of the engine, or processes with ``worker_kind="process"``,
    load ``prefetch_factor`` batches ahead, and at least an item each. An item that
    fails or is None raises; ``on_error="skip"`` leaves it out with a warning.
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
        self._crew = Crew(
            whole("num_workers", num_workers, 1),
            chosen("worker_kind", worker_kind, ("thread", "process")),
            whole("prefetch_factor", prefetch_factor, 1),
        )
        if not isinstance(sharding_strategy, ShardingStrategy):
            raise TypeError(
                "sharding_strategy is a ShardingStrategy, "
                f"not {type(sharding_strategy).__name__}"
            )
        if (shard_id is None) != (num_shards is None):
            raise ArgumentError(
                "Either both shard_id and num_shards are given or neither is, "
                f"not {shard_id} and {num_shards}"
            )
        self.sharding_strategy = sharding_strategy
        self._remainder = chosen("remainder", remainder, ("drop", "pad"))
        shared = shard_id is None
        if shard_id is None:
            num_shards, shard_id = sharding_strategy.shards()
        self._num_shards, self._shard_id = shard_of(num_shards, shard_id)
        if self._skip and self._num_shards > 1:
            raise ArgumentError(
                f"on_error='skip' with {self._num_shards} shards: they would no longer "
                "agree on the number of batches"
            )
        if shared and len(sharding_strategy.processes()) > 1:
            self._agree()

    def _agree(self) -> None:
        """Raises ``ValueError`` unless all processes load shards of the same."""
        from millstream._run.agreement import agree

        strategy = self.sharding_strategy
        mine = {
            "samples": len(self._dataset),
            "batch_size": self._gathering.strategy.size,
            "drop_last": self._gathering.drop_last,
            "remainder": self._remainder,
            "shards": self._num_shards,
            "sharding": strategy.layout(),
        }
        agree(mine, strategy.processes())

    @property
    def num_shards(self) -> int:
        """Into how many shards the data set is divided."""
        return self._num_shards

    @property
    def shard_id(self) -> int:
        """The shard that this loader loads."""
        return self._shard_id

    def _positions(self) -> Sequence[int]:
        size = len(self._dataset)
        own = self.sharding_strategy.get_shard_indices(
            size, self._shard_id, self._num_shards
        )
        return equal_positions(own, self._num_shards, size, remainder=self._remainder)


class Dataloader(DistributedDataLoader[B]):
    """Lists of ``batch_size`` items.

    With no workers and no prefetching items are loaded when they are asked for, in the
    caller's thread; prefetching alone is done by one worker. An item may be None.

    With a batcher and a strategy in the place of ``batch_size`` it is the
    `DistributedDataLoader` of these.
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

    def __init__(self, dataset: Indexed[Any], *given: Any, **more: Any) -> None:
        if "batcher" in more or (given and isinstance(given[0], Batcher)):
            super().__init__(dataset, *given, **more)
        else:
            self._of_lists(dataset, *given, **more)

    def _of_lists(
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
            Batcher(_listed),
            FixedBatchStrategy(batch_size),
            max(workers, 1),
            max(prefetch, 1),
            NoShardingStrategy(),
            drop_last=drop_last,
            on_error=on_error,
            worker_kind=worker_kind,
        )
        self._refuse_none = False
        self._crew = None
        if workers or prefetch:
            self._crew = Crew(max(workers, 1), worker_kind, prefetch)


def _listed(items: Any) -> Any:
    return items
