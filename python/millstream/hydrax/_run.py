"""One run of a `Dataloader`, from the start of its with block to the end."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import time
import traceback
import warnings
from collections import deque
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from millstream._core.errors import ITEM, DataError, WorkerTimeout, stand_in
from millstream._core.interrupts import StopOnInterrupt
from millstream._core.references import HeldBatches
from millstream._run.batch_cache import BatchCache, PendingRead
from millstream._run.cache_files import CachedBatch
from millstream._workers.executor import HostBatch, PendingBatch
from millstream.hydrax._batch import Batch, Content, TrainingBatch, ValidationBatch
from millstream.hydrax._groups import DataGroup
from millstream.hydrax._place import placed
from millstream.hydrax._schedule import Step
from millstream.hydrax._work import LoaderProcesses, merged

if TYPE_CHECKING:
    from millstream.hydrax._loader import Dataloader

# How many seconds to wait for a batch before checking for interrupts and timeouts.
_POLL = 0.05
_POLL_ANY = 0.002
# The executor has the same timeout, and its error names the item. Let it raise first.
_GRACE = 1.0
# The time that loader processes may take to start, before the first batch.
_START = 30.0
# The number of held batches beyond ``depth`` above which a run warns.
_MARGIN = 16

_NO_LOADER = (
    "hydrax: the batch's group has no loader_arrays to load it with. Pass "
    "loader_arrays= to DataGroup."
)

_held: list[HeldBatches] = []  # of the last run, and of those with batches alive
Load: TypeAlias = PendingBatch | PendingRead


class BatchTimeoutError(TimeoutError):
    """No batch was ready within ``timeout_sec``."""


def debug_batch_references() -> None:
    """Prints all batches and arrays that are alive, and the objects that hold them."""
    for held in _held:
        for line in held.report().splitlines():
            print(f"[hydrax] {line}")


def open_cache(group: DataGroup[Any], threads: int = 1, pending: int = 1) -> BatchCache:
    """The group's cache on disk. It is created if it does not exist."""
    assert group._cache_location is not None
    return BatchCache(
        group._cache_location,
        {
            name: SimpleNamespace(shape=shape, dtype=stored)
            for name, (shape, stored, *_) in (group.cache_layouts or {}).items()
        },
        {"_type": "millstream-hydrax-cache-v1", **asdict(group._order)},
        readonly=group._cache_readonly,
        threads=threads,
        pending=pending,
    )


class Run:
    """Keeps ``depth`` batches in progress and returns them to the calling thread."""

    def __init__(self, loader: Dataloader[Any]) -> None:
        self._loader = loader
        self._steps = loader._schedule.steps()
        self._pending: deque[tuple[Step, Load]] = deque()
        self._caches: dict[int, BatchCache] = {}
        self._held = HeldBatches(
            warn_above=loader._depth + _MARGIN,
            advice="Call hydrax.debug_batch_references() to see what holds them.",
        )
        _held[:] = [*filter(len, _held), self._held]
        self._first = True
        self._dropped = 0
        self.idle = 0.0
        self.interrupts = StopOnInterrupt(label="hydrax", on_stage=self._interrupted)
        self.loaders = LoaderProcesses(
            loader._function,
            loader._groups,
            loader._startup,
            workers=loader._loader_count,
            nice=loader._loader_nice,
            timeout=loader._timeout,
        )
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.interrupts)
            for number, group in enumerate(loader._groups):
                if group._cache_location is not None:
                    cache = open_cache(group, loader._cacher_count, loader._depth)
                    self._caches[number] = opened.enter_context(cache)
            opened.callback(self.loaders.close)
            self._opened = opened.pop_all()

    def close(self, kind: type[BaseException] | None) -> None:
        """Ends the processes and threads. Batches that are still alive stay valid.

        Pending batches are written to the cache first, unless the run was interrupted
        or has failed.
        """
        self._pending.clear()
        self._opened.__exit__(kind, None, None)

    def next(self) -> Batch[Any]:
        """The next batch; raises StopIteration at the end and after an interrupt."""
        while True:
            self.interrupts.check()
            taken = self._take()
            if taken is None:
                self.interrupts.check()
                raise StopIteration
            step, load = taken
            loads = self._loader._groups[step.group].loader_layouts is not None
            try:
                batch = self._finish(step, load.wait())
            except WorkerTimeout as error:
                raise BatchTimeoutError(str(error)) from error
            except Exception as error:
                if not loads and isinstance(error, (FileNotFoundError, DataError)):
                    error.add_note(_NO_LOADER)
                elif not hasattr(error, ITEM):  # such as a worker that died
                    _raise(error, step)
                self._drop(step, error)
                continue
            self._dropped = 0
            self._held.add((batch, dict(batch.arrays)))
            return batch

    def _load(self, step: Step) -> Load:
        cache, make = self._caches.get(step.group), None
        if self._loader._groups[step.group].loader_layouts is not None:
            make = functools.partial(self.loaders.submit, step)
            if cache is None or self._file(step) not in cache:
                return make()
        assert cache is not None  # a group without loader_arrays has a cache
        return cache.read_ahead(self._file(step), make)

    def _file(self, step: Step) -> str:
        """The name of a batch in the cache. Equal batches have one file."""
        reseeds = self._loader._groups[step.group]._order.reseeds
        epoch = step.epoch if reseeds and step.seed is not None else 0
        return f"e{epoch}-b{step.index}"

    def _take(self) -> tuple[Step, Load] | None:
        """Waits for a batch and removes it from the pending ones.

        It is the next one or, without ``deterministic``, the first that is ready.
        Returns None at the end and once the run is interrupted.
        """
        loader = self._loader
        for step in itertools.islice(self._steps, loader._depth - len(self._pending)):
            self._pending.append((step, self._load(step)))
        begun = time.monotonic()
        grace = _GRACE + _START if self._first else _GRACE
        try:
            while self._pending and not self.interrupts.stopped:
                for entry in itertools.islice(
                    self._pending, 1 if loader._deterministic else None
                ):
                    if entry[1].done:
                        self._pending.remove(entry)
                        return entry
                step, load = self._pending[0]
                waited = time.monotonic() - begun
                if loader._timeout is not None and waited > loader._timeout + grace:
                    raise BatchTimeoutError(
                        f"no batches have been produced in {loader._timeout:g} seconds "
                        f"by the loader processes {self.loaders.pids}; the next one is "
                        f"{step}. Raise timeout_sec= or loader_count="
                    )
                with contextlib.suppress(Exception):  # `next` waits again and raises it
                    load.wait(_POLL if loader._deterministic else _POLL_ANY)
            return None
        finally:
            if not self._first:
                self.idle += time.monotonic() - begun
            self._first = False

    def _finish(self, step: Step, made: HostBatch | CachedBatch | None) -> Batch[Any]:
        """The batch with its JAX arrays; starts caching it if that is automatic."""
        assert made is not None  # wait() without a timeout always returns a batch
        group, cache = self._loader._groups[step.group], self._caches.get(step.group)
        rows, save = len(step.indices), None
        arrays = {name: array[:rows] for name, array in made.arrays.items()}
        if isinstance(made, CachedBatch):
            layouts, additional = group.cache_layouts, made.extra
        else:
            layouts = group.loader_layouts
            additional, remarks = merged(made.host_values, rows)
            for remark in remarks:
                warnings.warn(remark, RuntimeWarning, stacklevel=4)
            if cache is not None and not cache.readonly:
                save = functools.partial(cache.put, self._file(step))
        assert layouts is not None
        content = Content(
            placed(self._loader._placement, arrays, layouts, additional, group),
            additional,
            uncached=layouts is not group.cache_layouts,
            save=save,
        )
        if save is not None and group._cache_direct:
            save(arrays, additional)
        numbers = (step.epoch, step.epoch_batch, step.batch_num)
        what = (content, group, step.index, step.indices)
        if step.seed is None:
            return ValidationBatch(*what, *numbers)
        return TrainingBatch(*what, *numbers, step.seed)

    def _drop(self, step: Step, error: Exception) -> None:
        """Raises the error, or leaves the batch out with a warning."""
        if self._loader._on_error == "raise":
            _raise(error, step)
        self._dropped += 1
        schedule = self._loader._schedule
        if schedule.last is None and self._dropped >= schedule.batches_per_epoch:
            raise RuntimeError(
                f"{self._dropped} batches in a row were dropped: not one batch of an "
                "epoch could be loaded. Pass on_error='raise' to see the first error."
            ) from error
        trace = "".join(traceback.format_exception(error))
        warnings.warn(f"{step} was dropped:\n{trace}", RuntimeWarning, stacklevel=4)

    def _interrupted(self, stage: int) -> None:
        for cache in self._caches.values():
            cache.abandon()
        for pid in self.loaders.pids if stage > 2 else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _raise(error: Exception, step: Step) -> NoReturn:
    error.add_note(f"This error was raised for {step}.")
    other = stand_in(error, f"for {step}")
    if other is None:
        raise error
    raise other from error
