"""Items loaded in their order, by a plain loop or ahead by workers."""

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
    """How many items an iterator has handed out, of how many."""

    items_processed: int
    items_total: int


class SkippedItemWarning(RuntimeWarning):
    """An item was left out, as ``on_error="skip"`` asks."""


@dataclass(frozen=True)
class Skipped:
    """What stands in the place of an item that is left out."""

    index: int
    reason: str


@dataclass(frozen=True)
class Fetch:
    """Gives the item at an index; it travels to worker processes.

    ``refuse_none`` takes an item that is None for one that is missing.
    """

    dataset: Dataset[Any]
    skip: bool
    refuse_none: bool

    def __call__(self, index: int) -> Any:
        try:
            item = self.dataset[index]
            if item is None and self.refuse_none:
                raise ValueError(
                    f"item {index} is None, which says that there is no such item"
                )
        except Exception as error:
            if not self.skip:
                raise
            return Skipped(index, f"{type(error).__name__}: {error}")
        return item


def plain_items(fetch: Fetch, positions: Sequence[int], count: int) -> Iterator[Any]:
    """The first ``count`` items, each when it is asked for, in the caller's thread."""
    for place in range(count):
        try:
            item = fetch(positions[place])
        except Exception as error:
            error.add_note(f"This was item {positions[place]} of the data set.")
            raise
        yield item


@dataclass(frozen=True)
class WorkerOptions:
    """The workers that load items: how many, of which kind, and how far ahead."""

    workers: int
    kind: str
    prefetch: int

    def open(self, fetch: Fetch, rows: int) -> Executor:
        """Puts them to work on items of ``fetch``, in chunks of ``rows``."""
        return Executor(
            ItemTask(fetch), [], rows, workers=self.workers, worker_kind=self.kind
        )

    def ahead(self, rows: int) -> int:
        """Chunks under way: those asked for, and an item for every worker."""
        return max(self.prefetch + 1, -(-self.workers // rows))


def worked_items(
    executor: Executor, positions: Sequence[int], count: int, rows: int, ahead: int
) -> Iterator[Any]:
    """The first ``count`` items in order, ``ahead`` chunks of ``rows`` under way."""
    pending: deque[tuple[int, PendingBatch]] = deque()
    firsts = iter(range(0, count, rows))
    try:
        while True:
            while len(pending) < ahead and (first := next(firsts, None)) is not None:
                chunk = positions[first : min(first + rows, count)]
                pending.append((len(chunk), executor.submit(chunk)))
            if not pending:
                return
            size, request = pending.popleft()
            made = request.wait()
            assert made is not None  # as there was no timeout
            yield from made.host_values[:size]
    finally:
        pending.clear()
        del executor  # the traceback of an error keeps this frame, but not its threads


@dataclass(frozen=True)
class Gathering(Generic[B_co]):
    """How a walk makes batches of items."""

    strategy: BatchStrategy[Any]
    batcher: Batcher[Any, B_co]
    drop_last: bool

    def batches(self, items: Iterator[Any]) -> Generator[tuple[int, B_co], None, None]:
        """(how many items, their batch), by a strategy of its own."""
        for number, ready in enumerate(self._groups(items)):
            try:
                batch = self.batcher.batch(ready)
            except Exception as error:
                error.add_note(f"This was batch {number}, of {len(ready)} items.")
                raise
            yield len(ready), batch

    def _groups(self, items: Iterator[Any]) -> Iterator[list[Any]]:
        """The items of each batch."""
        strategy = self.strategy.clone()
        for item in items:
            if isinstance(item, Skipped):
                text = f"item {item.index} is left out: {item.reason}"
                warnings.warn(text, SkippedItemWarning, stacklevel=4)
                continue
            strategy.add(item)
            while (ready := strategy.batch(force=False)) is not None:
                yield ready
        while not self.drop_last and (ready := strategy.batch(force=True)):
            yield ready


class BatchIterator(Iterator[B_co]):
    """One walk over a loader's batches; ``iter()`` of it is itself.

    An error ends it, after the batches before it. Its workers end with it: at the last
    batch, at an error, with ``close()`` or when it is dropped.
    """

    def __init__(
        self, items: Generator[Any, None, None], gathering: Gathering[B_co], total: int
    ) -> None:
        self._items = items
        self._batches = gathering.batches(items)
        self._progress = Progress(0, total)

    def __next__(self) -> B_co:
        try:
            count, batch = next(self._batches)
            done = self._progress.items_processed + count
            self._progress = Progress(done, self._progress.items_total)
        except BaseException:
            self.close()  # a traceback would keep the workers for as long as it lives
            raise
        return batch

    def progress(self) -> Progress:
        """How many items the batches handed out so far had, of all of them."""
        return self._progress

    def close(self) -> None:
        """Ends the walk and its workers."""
        self._batches.close()
        self._items.close()
