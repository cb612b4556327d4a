"""An executor that makes batches in workers.

The caller chooses the samples of each batch. The packages `hydrax` and `loadax` use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from millstream import _engine
from millstream._workers.host_values import host_value_rows
from millstream._workers.pools import NICENESS, worker_pool
from millstream._workers.rows import FieldSpec
from millstream._workers.tasks import Task

Field = tuple[str, Any, tuple[int, ...]]
"""Name, dtype and shape of one row."""


@dataclass(frozen=True)
class HostBatch:
    """A batch: arrays with one row per sample, and one host value per row.

    The workers wrote the arrays directly into this memory. It is aligned so that JAX
    can alias it. The executor reuses it after the arrays are deleted.
    """

    arrays: dict[str, np.ndarray]
    host_values: list[Any]


class PendingBatch:
    """A batch that was submitted to an executor."""

    def __init__(
        self, native: _engine.PendingBatch, columns: tuple[FieldSpec, ...], rows: int
    ) -> None:
        self._native: _engine.PendingBatch | None = native
        self._columns = columns
        self._rows = rows
        self._made: HostBatch | Exception | None = None

    @property
    def done(self) -> bool:
        """Whether ``wait`` would return or raise immediately."""
        return self._native is None or self._native.done

    def wait(self, timeout: float | None = None) -> HostBatch | None:
        """Returns the batch, or None after ``timeout`` seconds.

        Raises the error that a worker raised.
        """
        if isinstance(self._made, Exception):
            raise self._made
        if self._native is None:
            return self._made
        try:
            answer: Any = self._native.wait(1e8 if timeout is None else timeout)
        except Exception as error:
            # The engine's object holds the error, and the traceback holds this object.
            # The garbage collector cannot see this cycle, so it has to be broken here.
            self._native, self._made = None, error
            raise
        if answer is None:
            return None
        (*fields, _), host_values = answer
        arrays = {
            column.name: rows
            for column, rows in zip(self._columns, fields, strict=True)
        }
        self._made = HostBatch(arrays, host_value_rows(host_values, self._rows))
        self._native = None
        return self._made


class Executor:
    """Makes submitted batches in a worker pool, in the order of submission.

    Args:
      task: The task that makes the rows. Its outputs are set to ``fields``.
      fields: (name, dtype, shape) of each array of a row.
      rows: The largest number of rows in a batch.
      workers: The number of threads or processes.
      worker_kind: "thread" or "process".
      timeout: The time limit for one sample in seconds. None means no limit.
      restart_workers: How many worker processes may be replaced after they died.
        Their samples are tried again.
      nice: How much to increase the niceness of worker processes.
    """

    def __init__(
        self,
        task: Task,
        fields: Sequence[Field],
        rows: int,
        *,
        workers: int,
        worker_kind: str = "thread",
        timeout: float | None = None,
        restart_workers: int = 0,
        nice: int = NICENESS,
    ) -> None:
        self._columns = tuple(
            FieldSpec(name, np.dtype(dtype).name, tuple(shape))
            for name, dtype, shape in fields
        )
        self._rows = rows
        self._pool = worker_pool(
            replace(task, outputs=self._columns),
            workers,
            worker_kind,
            timeout=timeout,
            restart_workers=restart_workers,
            nice=nice,
        )
        specs = [column.spec for column in self._columns]
        concurrency = min(max(2, workers + 1), 32)
        self._native = _engine.executor(self._pool.native, specs, rows, concurrency)

    def submit(
        self, indices: Sequence[int] | np.ndarray, seeds: np.ndarray | None = None
    ) -> PendingBatch:
        """Queues a batch of the samples ``indices``. Never blocks."""
        numbers = np.ascontiguousarray(indices, np.int64)
        words = None if seeds is None else np.ascontiguousarray(seeds, np.uint64)
        return PendingBatch(
            self._native.submit(numbers, words), self._columns, self._rows
        )

    def batches(
        self, groups: Iterable[Sequence[int] | np.ndarray], ahead: int
    ) -> Iterator[HostBatch]:
        """Yields a batch of the samples of each group, in order.

        It keeps ``ahead`` batches submitted. Arrays and host values have one row per
        sample of the group.
        """
        pending: deque[tuple[int, PendingBatch]] = deque()
        waiting = iter(groups)
        try:
            while True:
                for group in islice(waiting, ahead - len(pending)):
                    pending.append((len(group), self.submit(group)))
                if not pending:
                    return
                size, request = pending.popleft()
                made = request.wait()
                assert made is not None  # there is no timeout
                arrays = {name: rows[:size] for name, rows in made.arrays.items()}
                yield HostBatch(arrays, made.host_values[:size])
        finally:
            pending.clear()
            del self  # a traceback keeps this frame alive, but should not keep threads

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return self._pool.pids

    @property
    def live(self) -> int:
        """The number of batches whose arrays still exist."""
        return self._native.live

    def close(self) -> None:
        """Stops the workers. Waiting for an unfinished batch then raises an error."""
        self._native.close()
