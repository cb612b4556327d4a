"""Loaders: iterables of batches. Several iterators of one loader are independent."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

import numpy as np

from millstream._core.arguments import instance, one_of
from millstream._core.errors import WorkerError
from millstream._workers.sample_loader import (
    SampleLoader,
    SampleReader,
    Skipped,
    shard_groups,
)
from millstream.loadax import _arguments as check
from millstream.loadax._types import B, B_co, T
from millstream.loadax.batcher import Batcher, BatchStrategy, FixedBatchStrategy, stack
from millstream.loadax.dataset.protocol import Indexed, dataset_of

if TYPE_CHECKING:
    from millstream.loadax.dataloader.sharding import ShardingStrategy


@dataclass(frozen=True)
class Progress:
    """How many items an iterator has returned, and how many it has in total."""

    items_processed: int
    items_total: int


class SkippedItemWarning(RuntimeWarning):
    """An item was left out because of ``on_error="skip"``."""


class DistributedDataLoader(Generic[B_co]):
    """Loads one shard of a data set ahead, with workers.

    It is an iterable of batches with a length, without a position of its own: every
    ``iter()`` starts at the first batch.

    ``sharding_strategy`` determines this process's shard, unless both ``shard_id`` and
    ``num_shards`` are given. All shards load the same number of items. If the items do
    not divide evenly, ``remainder="drop"`` leaves out the last item of the larger
    shards, and ``"pad"`` makes the smaller shards load an item of another shard too.

    ``num_workers`` threads, or processes with ``worker_kind="process"``, load
    ``prefetch_factor`` batches ahead, and at least one item each. An item that fails or
    is None raises an error. With ``on_error="skip"`` it is left out with a warning.
    ``drop_last`` leaves out a last batch that is not full.
    """

    _least_workers = 1
    _refuse_none = True

    def __init__(
        self,
        dataset: Indexed[Any],
        batcher: Batcher[Any, B_co],
        strategy: BatchStrategy[Any],
        num_workers: int,
        prefetch_factor: int,
        sharding_strategy: ShardingStrategy | None = None,
        shard_id: int | None = None,
        num_shards: int | None = None,
        **options: Unpack[check.Options],
    ) -> None:
        from millstream.loadax.dataloader import sharding as strategies

        check.options(type(self).__name__, options)
        sharding = sharding_strategy or strategies.NoShardingStrategy()
        kind = options.get("worker_kind", "thread")
        on_error = options.get("on_error", "raise")
        self.dataset = dataset_of(dataset)
        self.batcher: Batcher[Any, B_co] = instance("batcher", batcher, Batcher)
        self.strategy: Any = instance("strategy", strategy, BatchStrategy)
        least = self._least_workers
        self.num_workers = check.whole("num_workers", num_workers, least)
        self.prefetch_factor = check.whole("prefetch_factor", prefetch_factor, least)
        instance("sharding_strategy", sharding, strategies.ShardingStrategy)
        self.sharding_strategy: ShardingStrategy = sharding
        self.drop_last = bool(options.get("drop_last"))
        remainder = options.get("remainder", "drop")
        self.remainder = one_of("remainder", remainder, ("drop", "pad"))
        self.on_error = one_of("on_error", on_error, ("raise", "skip"))
        self.worker_kind = one_of("worker_kind", kind, ("thread", "process"))
        rows = self.strategy.size
        self._workers = SampleLoader(rows, prefetch_factor, num_workers, kind)
        is_stack = batcher.batch_fn is stack and type(strategy) is FixedBatchStrategy
        self._stacks = is_stack and num_workers > 0 and on_error == "raise"
        given = shard_id is not None or num_shards is not None
        self.num_shards, self.shard_id = (
            check.shard_of(num_shards, shard_id) if given else sharding.shards()
        )
        if self.on_error == "skip" and self.num_shards > 1:
            raise check.ArgumentError(
                f"on_error='skip' cannot be combined with {self.num_shards} shards, "
                "because the shards could end up with different numbers of batches. "
                "Use on_error='raise'."
            )
        if not given and len(sharding.processes()) > 1:
            self._agree()

    def _agree(self) -> None:
        """Raises ``ValueError`` unless all processes have the same arguments."""
        from millstream._run.agreement import agree

        mine = {
            "samples": len(self.dataset),
            "batch_size": self.strategy.size,
            "drop_last": self.drop_last,
            "remainder": self.remainder,
            "shards": self.num_shards,
            "sharding": self.sharding_strategy.layout(),
        }
        agree(mine, self.sharding_strategy.processes())

    def __iter__(self) -> BatchIterator[B_co]:
        return BatchIterator(self._batches(), self.num_items())

    def __len__(self) -> int:
        return self.num_batches()

    def num_items(self) -> int:
        """The number of items of one iteration, not counting a dropped last batch."""
        more = self.num_shards - 1 if self.remainder == "pad" else 0
        count = (len(self.dataset) + more) // self.num_shards
        fixed = isinstance(self.strategy, FixedBatchStrategy)
        if self.drop_last and self.on_error == "raise" and fixed:
            count -= count % self.strategy.size
        return count

    def num_batches(self) -> int:
        """The number of batches of one iteration, if no item is skipped."""
        items, drop = self.num_items(), self.drop_last
        return int(self.strategy.num_batches(items, drop_last=drop))

    def at_epoch(self, epoch: int) -> Self:
        """The same loader over ``dataset.at_epoch(epoch)``."""
        loader = copy.copy(self)
        loader.dataset = self.dataset.at_epoch(check.whole("epoch", epoch, 0))
        loader._workers = replace(self._workers)
        return loader

    def close(self) -> None:
        """Ends the worker processes, if any. The next iteration starts new ones."""
        self._workers.close()

    def _groups(self, first: int) -> Iterator[np.ndarray]:
        """The indices that each request loads, from item number ``first`` on.

        Raises ``ValueError`` if this shard has fewer items than the others load.
        """
        size, count = len(self.dataset), self.num_items()
        own = self.sharding_strategy.get_shard_indices(
            size, self.shard_id, self.num_shards
        )
        if len(own) < count and self.remainder == "drop":
            raise check.ArgumentError(
                f"the sharding strategy gives this shard {len(own)} of {size} items; "
                f"each of {self.num_shards} equal shards needs at least {count}"
            )
        return shard_groups(own, count, size, self.strategy.size, first)

    def _batches(self) -> Generator[tuple[int, B_co], None, None]:
        """Each batch with its number of items."""
        done, size = 0, self.strategy.size
        if self._stacks and self.num_items():
            try:
                for batch in self._stacked():
                    count = min(size, self.num_items() - done)
                    yield count, batch
                    done += count
                return
            except WorkerError:
                raise
            except Exception:
                # The items do not fit the arrays, or there is an error, which the other
                # way of loading attributes to its item.
                self._stacks = False
        data, skip = self.dataset, self.on_error == "skip"
        reader = SampleReader(data._items, skip, self._refuse_none)
        loaded = chain.from_iterable(self._workers.lists(reader, self._groups(done)))
        for number, ready in enumerate(self._ready(loaded), done // size):
            try:
                batch = self.batcher.batch(ready)
            except Exception as error:
                error.add_note(
                    f"This error was raised for batch {number}, which has {len(ready)} "
                    "items."
                )
                raise
            yield len(ready), batch

    def _stacked(self) -> Iterator[B_co]:
        """Batches whose items the workers write directly into the arrays."""
        source, indices = self.dataset._source(next(self._groups(0)))
        for batch in self._workers.stacked(
            source._items(indices[:1].tolist())[0],
            source._reader(),
            source._items,
            (self.dataset._source(group)[1] for group in self._groups(0)),
        ):
            yield self.batcher.place(batch)

    def _ready(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        """The items of each batch."""
        strategy = self.strategy.clone()
        for item in items:
            if isinstance(item, Skipped):
                text = f"item {item.index} was left out: {item.reason}"
                warnings.warn(text, SkippedItemWarning, stacklevel=4)
                continue
            strategy.add(item)
            while (ready := strategy.batch(force=False)) is not None:
                yield ready
        while not self.drop_last and (ready := strategy.batch(force=True)):
            yield ready


class BatchIterator(Iterator[B_co]):
    """An iterator over a loader's batches.

    It returns all batches before an error, then raises the error and ends. Worker
    threads end with the iterator: after the last batch, after an error, at ``close()``
    or when the iterator is deleted.
    """

    def __init__(self, batches: Generator[Any, None, None], total: int) -> None:
        self._batches, self._progress = batches, Progress(0, total)

    def __next__(self) -> B_co:
        try:
            count, batch = next(self._batches)
            done = self._progress.items_processed + count
            self._progress = replace(self._progress, items_processed=done)
        except BaseException:
            self.close()  # otherwise the traceback would keep the workers alive
            raise
        return batch

    def progress(self) -> Progress:
        """How many items were returned so far, and how many there are in total."""
        return self._progress

    def close(self) -> None:
        """Ends the iteration and its worker threads."""
        self._batches.close()


class NaiveDataLoader(DistributedDataLoader[B]):
    """Loads items one by one on the calling thread, when their batch is requested."""

    _least_workers = 0

    def __init__(
        self,
        dataset: Indexed[T],
        batcher: Batcher[T, B],
        strategy: BatchStrategy[T],
        **options: Unpack[check.Options],
    ) -> None:
        check.options("NaiveDataLoader", options)
        super().__init__(dataset, batcher, strategy, 0, 0, **options)


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
        **options: Unpack[check.Options],
    ) -> None: ...

    @overload
    def __init__(
        self,
        dataset: Indexed[T],
        batcher: Batcher[T, B],
        strategy: BatchStrategy[T],
        *args: Any,
        **options: Any,
    ) -> None: ...

    def __init__(self, dataset: Indexed[Any], *args: Any, **kwargs: Any) -> None:
        if isinstance(dataset, Batcher):
            check.options("Dataloader", {"batcher": dataset})
        if "batcher" in kwargs or (args and isinstance(args[0], Batcher)):
            super().__init__(dataset, *args, **kwargs)
        else:
            self._init_lists(dataset, *args, **kwargs)

    def _init_lists(
        self,
        dataset: Indexed[Any],
        batch_size: int,
        num_workers: int = 0,
        prefetch_factor: int = 0,
        **options: Unpack[check.Options],
    ) -> None:
        check.options("Dataloader", options)
        self._least_workers, self._refuse_none = 0, False
        workers = num_workers or min(prefetch_factor, 1)
        strategy: FixedBatchStrategy[Any] = FixedBatchStrategy(batch_size)
        super().__init__(
            dataset, Batcher(_unchanged), strategy, workers, prefetch_factor, **options
        )


def _unchanged(items: Any) -> Any:
    return items


NaiveDataloader = NaiveDataLoader
