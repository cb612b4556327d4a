"""One run of a `Dataloader`, from the start of its with block to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from millstream._core.errors import WorkerTimeout, stand_in
from millstream.hydrax import _cache
from millstream.hydrax._batch import Batch, TrainingBatch, ValidationBatch
from millstream.hydrax._cacher import Cacher
from millstream.hydrax._groups import DataGroup
from millstream.hydrax._interrupts import Interrupts
from millstream.hydrax._loads import (
    FromCache,
    FromWorkers,
    Load,
    Loaded,
    Missing,
    NotCached,
)
from millstream.hydrax._place import PlacementFunc, placed
from millstream.hydrax._references import Watch
from millstream.hydrax._schedule import Schedule, Step
from millstream.hydrax._work import GroupExecutors, LoaderFunc, is_of_an_item

# How many seconds to wait for a batch before checking for interrupts and timeouts.
_POLL = 0.05
_POLL_ANY = 0.002
# The executor has the same timeout, and its error names the item. Let it raise first.
_GRACE = 1.0
# The time that loader processes may take to start, before the first batch.
_START = 30.0


class BatchTimeoutError(TimeoutError):
    """No batch was ready within ``timeout_sec``."""


@dataclass(frozen=True)
class Plan:
    """The arguments of a `Dataloader`, checked."""

    function: LoaderFunc
    groups: tuple[DataGroup[Any], ...]
    schedule: Schedule
    depth: int
    loader_count: int
    loader_nice: int
    cacher_count: int
    deterministic: bool
    timeout: float | None
    startup: Callable[[], None] | None
    placement: PlacementFunc | None
    on_error: str


class Run:
    """Keeps ``depth`` batches in progress and returns them to the calling thread."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pool: GroupExecutors | None = None
        self._cacher: Cacher | None = None
        self._steps = plan.schedule.steps()
        self._pending: deque[tuple[Step, Load]] = deque()
        self._watch = Watch(plan.depth)
        self._first = True
        self._ended = False
        self._dropped = 0
        self.idle = 0.0
        self.interrupts = Interrupts(self._kill)
        try:
            if any(group._cache_location is not None for group in plan.groups):
                self._cacher = Cacher(plan.depth, plan.cacher_count)
            if plan.loader_count:
                self._pool = GroupExecutors(
                    plan.function,
                    plan.groups,
                    count=plan.loader_count,
                    nice=plan.loader_nice,
                    startup=plan.startup,
                    timeout=plan.timeout,
                )
            self.interrupts.install()
        except BaseException:
            self.close(failed=True)
            raise

    def next(self) -> Batch[Any]:
        """The next batch; raises StopIteration at the end and after an interrupt."""
        while True:
            self.interrupts.check()
            taken = None if self._ended else self._take()
            if taken is None:
                self.interrupts.check()
                self._ended = True
                raise StopIteration
            step, load = taken
            try:
                loaded = load.result()
            except WorkerTimeout as error:
                raise BatchTimeoutError(str(error)) from error
            except Exception as error:
                if not isinstance(error, NotCached) and not is_of_an_item(error):
                    raise  # a worker died, or could not start
                self._drop(step, error)
                continue
            try:
                batch = self._finish(step, loaded)
            except Exception as error:
                if self._plan.placement is None:  # not raised by a user's function
                    _raise(error, step)
                self._drop(step, error)
                continue
            self._dropped = 0
            self._watch.add(batch)
            return batch

    def close(self, *, failed: bool) -> None:
        """Ends the processes and threads. Batches that are still alive stay valid.

        Pending batches are written to the cache first, unless the run was interrupted
        or has failed.
        """
        self._ended = True
        self._pending.clear()
        try:
            if self._pool is not None:
                self._pool.close()
            if self._cacher is not None:
                self._cacher.close(is_over=lambda: failed or self.interrupts.stopped)
        finally:
            self.interrupts.restore()
        if not failed:
            self.interrupts.check()

    def _start_loads(self) -> None:
        while len(self._pending) < self._plan.depth:
            step = next(self._steps, None)
            if step is None:
                return
            self._pending.append((step, self._load(step)))

    def _load(self, step: Step) -> Load:
        group = self._plan.groups[step.group]
        path = _cache.batch_path(group, _epoch(step), step.index)
        if path is None or self._cacher is None or not path.exists():
            return self._load_again(step)
        assert group._cache_layouts is not None
        assert group._cache_size is not None
        future = self._cacher.read(
            path, group._cache_layouts, group._cache_size, len(step.indices)
        )
        return FromCache(future, lambda: self._load_again(step))

    def _load_again(self, step: Step) -> Load:
        group = self._plan.groups[step.group]
        if group._loader_layouts is None:
            path = _cache.batch_path(group, _epoch(step), step.index)
            assert path is not None
            return Missing(path)
        assert self._pool is not None
        return FromWorkers(self._pool.submit(step), len(step.indices))

    def _take(self) -> tuple[Step, Load] | None:
        """Waits for a batch and removes it from the pending ones.

        It is the next one or, without ``deterministic``, the first that is ready.
        Returns None at the end and once the run is interrupted.
        """
        plan = self._plan
        self._start_loads()
        begun = time.monotonic()
        grace = _GRACE + _START if self._first else _GRACE
        try:
            while self._pending and not self.interrupts.stopped:
                for position, (_, load) in enumerate(self._pending):
                    if load.is_done():
                        taken = self._pending[position]
                        del self._pending[position]
                        return taken
                    if plan.deterministic:
                        break
                step, load = self._pending[0]
                waited = time.monotonic() - begun
                if plan.timeout is not None and waited > plan.timeout + grace:
                    raise BatchTimeoutError(
                        f"no batch was ready within {plan.timeout:g} seconds; the next "
                        f"one is {_named(step)}. Raise timeout_sec= or loader_count="
                    )
                load.pause(_POLL if plan.deterministic else _POLL_ANY)
            return None
        finally:
            if not self._first:
                self.idle += time.monotonic() - begun
            self._first = False

    def _finish(self, step: Step, loaded: Loaded) -> Batch[Any]:
        """The batch with its JAX arrays; starts caching it if that is automatic."""
        group = self._plan.groups[step.group]
        for remark in loaded.remarks:
            warnings.warn(remark, RuntimeWarning, stacklevel=4)
        kind = ValidationBatch if step.seed is None else TrainingBatch
        batch = kind(group, step)
        layouts = group._cache_layouts if loaded.from_cache else group._loader_layouts
        assert layouts is not None
        arrays = placed(
            self._plan.placement, loaded.arrays, layouts, loaded.additional, group
        )
        uncached = not loaded.from_cache and not group._cache_direct
        batch._fill(arrays, loaded.additional, uncached=uncached)
        if self._cacher is None or group._cache_readonly or loaded.from_cache:
            return batch
        if group._cache_direct:
            self._save(step, loaded.arrays, loaded.additional)
        else:
            batch._save = self._save
        return batch

    def _save(
        self, step: Step, arrays: Mapping[str, Any], additional: dict[str, list[Any]]
    ) -> None:
        group = self._plan.groups[step.group]
        path = _cache.batch_path(group, _epoch(step), step.index)
        assert self._cacher is not None
        assert path is not None
        assert group._cache_layouts is not None
        assert group._cache_size is not None
        self._cacher.save(
            path,
            arrays,
            additional,
            group._cache_layouts,
            group._cache_size,
            is_over=lambda: self.interrupts.stopped,
        )

    def _drop(self, step: Step, error: Exception) -> None:
        """Raises the error, or leaves the batch out with a warning."""
        if self._plan.on_error == "raise":
            _raise(error, step)
        self._dropped += 1
        schedule = self._plan.schedule
        if schedule.last is None and self._dropped >= schedule.batches_per_epoch:
            raise RuntimeError(
                f"{self._dropped} batches in a row were dropped: not one batch of an "
                "epoch could be loaded. Pass on_error='raise' to see the first error."
            ) from error
        trace = "".join(traceback.format_exception(error))
        warnings.warn(
            f"{_named(step)} was dropped:\n{trace}", RuntimeWarning, stacklevel=4
        )

    def _kill(self) -> None:
        for pid in self._pool.pids if self._pool is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _epoch(step: Step) -> int:
    """The epoch under which a batch is cached. Validation always uses epoch 0."""
    return 0 if step.seed is None else step.epoch


def _raise(error: Exception, step: Step) -> NoReturn:
    error.add_note(f"This error was raised for {_named(step)}.")
    other = stand_in(error, f"for {_named(step)}")
    if other is None:
        raise error
    raise other from error


def _named(step: Step) -> str:
    kind = "validation batch" if step.seed is None else "batch"
    return f"{kind} {step.batch_num} (epoch {step.epoch}, number {step.epoch_batch})"
