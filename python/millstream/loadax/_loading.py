"""Loads items in order, one by one or ahead with workers, and iterates over batches."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millstream._workers.executor import Executor, PendingBatch
from millstream._workers.tasks import ItemTask
from millstream.loadax._batching import Batcher, BatchStrategy
from millstream.loadax._dataset import Dataset

B_co = TypeVar("B_co", covariant=True)


@dataclass(frozen=True)
class Progress:
    """How many items an iterator has returned, and how many it has in total."""

    items_processed: int
    items_total: int


class SkippedItemWarning(RuntimeWarning):
    """An item was left out because of ``on_error="skip"``."""


@dataclass(frozen=True)
class Skipped:
    """Takes the place of an item that is left out."""

    index: int
    reason: str


@dataclass(frozen=True)
class Fetch:
    """Returns the item at an index. It is pickled to worker processes.

    With ``refuse_none`` an item that is None is an error.
    """

    dataset: Dataset[Any]
    skip: bool
    refuse_none: bool

    def __call__(self, index: int) -> Any:
        try:
            item = self.dataset[index]
            if item is None and self.refuse_none:
                raise ValueError(
                    f"item {index} is None, which Loadax uses for a missing item. Use "
                    "on_error='skip' to leave it out."
                )
        except Exception as error:
            if not self.skip:
                raise
            return Skipped(index, f"{type(error).__name__}: {error}")
        return item


def items_one_by_one(
    fetch: Fetch, positions: Sequence[int], count: int
) -> Iterator[Any]:
    """The first ``count`` items, loaded one by one on the calling thread."""
    for place in range(count):
        try:
            item = fetch(positions[place])
        except Exception as error:
            error.add_note(
                f"This error was raised for item {positions[place]} of the data set."
            )
            raise
        yield item


@dataclass(frozen=True)
class WorkerOptions:
    """The number and kind of the workers, and how many batches they load ahead."""

    workers: int
    kind: str
    prefetch: int

    def open(self, fetch: Fetch, rows: int) -> Executor:
        """Starts workers that load items with ``fetch``, up to ``rows`` per request."""
        return Executor(
            ItemTask(fetch), [], rows, workers=self.workers, worker_kind=self.kind
        )

    def ahead(self, rows: int) -> int:
        """The number of requests to keep pending, so that every worker has an item."""
        return max(self.prefetch + 1, -(-self.workers // rows))


def items_by_workers(
    executor: Executor, positions: Sequence[int], count: int, rows: int, ahead: int
) -> Iterator[Any]:
    """The first ``count`` items in order.

    Keeps ``ahead`` requests of ``rows`` items pending.
    """
    pending: deque[tuple[int, PendingBatch]] = deque()
    firsts = iter(range(0, count, rows))
    try:
        while True:
            while len(pending) < ahead and (first := next(firsts, None)) is not None:
                indices = positions[first : min(first + rows, count)]
                pending.append((len(indices), executor.submit(indices)))
            if not pending:
                return
            size, request = pending.popleft()
            made = request.wait()
            assert made is not None  # wait() without a timeout always returns a batch
            yield from made.host_values[:size]
    finally:
        pending.clear()
        del executor  # a traceback keeps this frame alive, but should not keep threads


@dataclass(frozen=True)
class BatchAssembler(Generic[B_co]):
    """Makes batches from items."""

    strategy: BatchStrategy[Any]
    batcher: Batcher[Any, B_co]
    drop_last: bool

    def batches(self, items: Iterator[Any]) -> Generator[tuple[int, B_co], None, None]:
        """Each batch with its number of items; uses a clone of the strategy."""
        for number, ready in enumerate(self._groups(items)):
            try:
                batch = self.batcher.batch(ready)
            except Exception as error:
                error.add_note(
                    f"This error was raised for batch {number}, which has {len(ready)} "
                    "items."
                )
                raise
            yield len(ready), batch

    def _groups(self, items: Iterator[Any]) -> Iterator[list[Any]]:
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

    def __init__(
        self,
        items: Generator[Any, None, None],
        assembler: BatchAssembler[B_co],
        total: int,
    ) -> None:
        self._items = items
        self._batches = assembler.batches(items)
        self._progress = Progress(0, total)

    def __next__(self) -> B_co:
        try:
            count, batch = next(self._batches)
            done = self._progress.items_processed + count
            self._progress = Progress(done, self._progress.items_total)
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
        self._items.close()
