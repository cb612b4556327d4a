"""Loads groups of samples in workers, ahead and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream._workers.executor import Executor, Field, HostBatch
from millstream._workers.rows import unflatten
from millstream._workers.tasks import ItemTask, SamplesTask, SampleTask, Task

Groups = Iterable[np.ndarray]


def shard_groups(
    own: range, count: int, size: int, rows: int, first: int = 0
) -> Iterator[np.ndarray]:
    """Yields the indices of the samples of a shard in groups of up to ``rows``.

    The shard has the samples ``own`` of ``size``, and loads ``count``. If it has fewer,
    it continues with the samples after them, and after the last one with sample 0. The
    groups begin with number ``first`` of the samples to load.
    """
    for start in range(first, count, rows):
        end = min(start + rows, count)
        mine, more = own[start:end], np.arange(max(start, len(own)), end)
        indices = np.arange(mine.start, mine.stop, mine.step)
        yield np.append(indices, (own.stop - len(own) + more) % size)


@dataclass(frozen=True)
class Skipped:
    """Takes the place of a sample that is left out because of an error."""

    index: int
    reason: str


@dataclass(frozen=True)
class SampleReader:
    """Reads samples of a data set. It is pickled to worker processes.

    ``several(indices)`` returns several samples. If it raises an error, it is called
    for each of them, so that the error is that of one sample. With ``skip``, that
    sample becomes a ``Skipped``. With ``refuse_none``, a sample that is None counts as
    an error.
    """

    several: Callable[[list[int]], list[Any]]
    skip: bool = False
    refuse_none: bool = False

    def __getitems__(self, indices: list[int]) -> list[Any]:
        try:
            samples = self.several(indices)
            if not self.refuse_none or all(sample is not None for sample in samples):
                return samples
        except Exception:
            pass  # reading them one by one raises the error again
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        try:
            (sample,) = self.several([index])
            if sample is None and self.refuse_none:
                raise ValueError(
                    f"item {index} is None, which means that it is missing. Use "
                    "on_error='skip' to leave it out."
                )
        except Exception as error:
            if self.skip:
                return Skipped(index, f"{type(error).__name__}: {error}")
            error.add_note(f"This error was raised for item {index} of the data set.")
            raise
        return sample


@dataclass
class SampleLoader:
    """Worker threads or processes, and how many groups they load ahead.

    Threads end with an iteration. Processes are slow to start, so they stay until
    ``close``. All iterations of one loader with processes must do the same task.
    """

    rows: int
    """The largest number of samples in a group."""
    prefetch: int
    """How many groups to load ahead, or more to give every worker a sample."""
    workers: int
    """The number of workers. 0 loads each group in the calling thread."""
    worker_kind: str
    _executor: Executor | None = field(default=None, init=False)

    def lists(self, reader: SampleReader, groups: Groups) -> Iterator[list[Any]]:
        """Yields the samples of each group as a list."""
        if not self.workers:
            yield from (reader.__getitems__(group.tolist()) for group in groups)
            return
        for made in self._made(ItemTask(reader), [], groups):
            yield made.host_values

    def stacked(
        self,
        sample: Any,
        one: Callable[[int], Any] | None,
        several: Callable[[list[int]], list[Any]],
        groups: Groups,
    ) -> Iterator[Any]:
        """Yields the samples of each group, stacked into NumPy arrays.

        Workers write samples directly into the arrays. They call ``one(index)``, or
        ``several(indices)`` if ``one`` is None. All samples must have the structure,
        the dtypes and the shapes of ``sample``.
        """
        import jax

        leaves, structure = jax.tree.flatten(sample)
        arrays = [np.asarray(leaf) for leaf in leaves]
        tree = jax.tree.unflatten(structure, range(len(arrays)))
        task = SamplesTask(several, tree) if one is None else SampleTask(one, tree)
        fields = [(str(i), x.dtype, x.shape) for i, x in enumerate(arrays)]
        for made in self._made(task, fields, groups):
            yield unflatten(tree, list(made.arrays.values()))

    def close(self) -> None:
        """Ends the worker processes, if any. The next iteration starts new ones."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def _made(
        self, task: Task, fields: Sequence[Field], groups: Groups
    ) -> Iterator[HostBatch]:
        executor = self._executor or Executor(
            task, fields, self.rows, workers=self.workers, worker_kind=self.worker_kind
        )
        if self.worker_kind == "process":
            self._executor = executor
        try:
            ahead = max(self.prefetch + 1, -(-self.workers // self.rows))
            yield from executor.batches(groups, ahead)
        except Exception:
            self.close()  # processes may be in any state
            raise
        finally:
            if self.worker_kind == "thread":
                executor.close()
            del executor  # a traceback keeps this frame alive
