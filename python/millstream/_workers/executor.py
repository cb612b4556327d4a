"""Batches of samples named one by one, for those who keep an order of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millstream import _engine
from millstream._workers.host_values import host_value_rows
from millstream._workers.pools import worker_pool
from millstream._workers.tasks import FieldSpec, Task

Field = tuple[str, Any, tuple[int, ...]]
"""Name, dtype and shape of one row."""


@dataclass(frozen=True)
class HostBatch:
    """A batch: arrays with the rows first, and one host value for each row.

    The arrays are where the workers wrote them, each aligned so that JAX aliases it;
    the memory is used again when they are gone.
    """

    arrays: dict[str, np.ndarray]
    host_values: list[Any]


class PendingBatch:
    """A batch that was begun."""

    def __init__(
        self, native: _engine.PendingBatch, columns: tuple[FieldSpec, ...], rows: int
    ) -> None:
        self._native: _engine.PendingBatch | None = native
        self._columns = columns
        self._rows = rows
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether waiting would take no time."""
        return self._native is None or self._native.done

    def wait(self, timeout: float | None = None) -> HostBatch | None:
        """The batch, or None after ``timeout`` seconds; raises what went wrong."""
        if self._native is None:
            assert self._error is not None
            raise self._error
        try:
            answer: Any = self._native.wait(1e8 if timeout is None else timeout)
        except Exception as error:
            # The engine's pending would hold the error, whose traceback holds this one:
            # a ring that no collector sees, with all that the caller's frames hold.
            self._native, self._error = None, error
            raise
        if answer is None:
            return None
        (*fields, _), parts = answer
        arrays = {
            column.name: rows
            for column, rows in zip(self._columns, fields, strict=True)
        }
        return HostBatch(arrays, host_value_rows(parts, self._rows))


class Executor:
    """Makes batches ahead, in the order in which they were begun.

    Args:
      task: What to call; its outputs are set to ``fields``.
      fields: (name, dtype, shape) of each array of a row.
      rows: How many rows a batch has at most.
      workers: How many threads or processes.
      worker_kind: "thread" or "process".
      timeout: Seconds that one sample may take.
      restart_workers: How many processes may be replaced, their samples tried again.
      nice: How much a worker process gives way to others.
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
        nice: int = 0,
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
        at_once = min(max(2, workers + 1), 32)
        self._native = _engine.executor(self._pool.native, specs, rows, at_once)

    def submit(
        self, indices: Sequence[int] | np.ndarray, seeds: np.ndarray | None = None
    ) -> PendingBatch:
        """Queues a batch of these samples; never waits."""
        numbers = np.ascontiguousarray(indices, np.int64)
        drawn = None if seeds is None else np.ascontiguousarray(seeds, np.uint64)
        return PendingBatch(
            self._native.submit(numbers, drawn), self._columns, self._rows
        )

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return self._pool.pids

    @property
    def live(self) -> int:
        """Batches that someone still holds."""
        return self._native.live

    def close(self) -> None:
        """Ends the workers; batches that are not done raise."""
        self._native.close()
