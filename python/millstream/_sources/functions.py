"""Samples that Python functions make in workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._order.orders import order_of
from millstream._sources.ordered import OrderedSource
from millstream._workers.first_sample import (
    columns_of,
    first_sample,
    not_arrays,
    specs,
    without,
)
from millstream._workers.pools import UsesWorkers, WorkerPool, checked_workers
from millstream._workers.tasks import SamplesTask, SampleTask


class FunctionSource(UsesWorkers, OrderedSource):
    """A source whose samples a function makes in workers.

    Subclasses are dataclasses with the fields ``ordering``, ``prefetch_size`` and
    ``host_fields`` of ``DiskSampleSource``, and call ``_check`` and ``_start``.
    """

    prefetch_size: int
    host_fields: tuple[str, ...] | None
    _host_field_names: tuple[str, ...]
    _pool: WorkerPool

    def _check(self) -> None:
        """What can be refused before the samples are asked for anything."""
        name = f"{type(self).__name__}: prefetch_size"
        size = whole(name, self.prefetch_size, 1)
        object.__setattr__(self, "prefetch_size", size)
        order_of(self.ordering)
        checked_workers(self.workers, self.worker_kind, self.restart_workers)

    def _start(
        self, length: int, one: Callable[[int], Any], task: type[SampleTask], fn: Any
    ) -> None:
        """``one(0)`` says what samples look like where ``sample_spec`` does not."""
        name = type(self).__name__
        if isinstance(length, bool) or not isinstance(length, int | np.integer):
            raise TypeError(f"{name}: length must be a whole number, not {length!r}")
        if length < 1:
            raise ValueError(f"{name}: length must be at least 1, not {length}")
        spec = self.sample_spec  # type: ignore[attr-defined]
        apart = self.host_fields
        if spec is None:
            sample = first_sample(name, lambda: one(0), 5)
            apart = not_arrays(sample) if apart is None else tuple(apart)
            spec = without(sample, apart)
        columns, tree = columns_of(spec, name)
        made = task(fn, tree, tuple(apart or ()), outputs=columns)
        workers = self._pool_for(made)
        self.__dict__.update(_host_field_names=made.host_fields, _pool=workers)
        native = _engine.function_source(length, specs(columns), workers.native)
        self._open(native, tree)

    @property
    def prefetch_samples(self) -> int:
        return max(self.prefetch_size, 2 * self.workers)

    @property
    def host_field_names(self) -> tuple[str, ...]:
        """The keys of host fields: values that are not arrays."""
        return self._host_field_names

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return self._pool.pids

    def close(self) -> None:
        """Ends the workers; what is asked of them from then on is refused."""
        self._pool.close()


@public
@dataclass(frozen=True, eq=False)
class DiskSampleSource(FunctionSource):
    """``length`` samples, each made by ``sample_fn(index)`` in a worker.

    The function has to be pure: a sample that differs from call to call differs
    between the Python loop, jit and a resumed run. A value of a sample that is no array
    (a path, a string) reaches the Python loop as a list, a host field.

    Args:
      length: How many samples there are.
      sample_fn: From an index to a pytree of NumPy arrays.
      sample_spec: What a sample looks like: a pytree of ``jax.ShapeDtypeStruct``; None
        to call ``sample_fn(0)`` here and look.
      ordering: "shuffle", "sequential", or an Order.
      prefetch_size: How many samples to make ahead where the loader does not say.
      workers: How many threads or processes call the function.
      worker_kind: "thread", or "process" where the function holds the GIL.
      timeout: Seconds that one sample may take; None for any time. A process that takes
        longer is replaced. A thread cannot be stopped, so the source is closed.
      restart_workers: How many processes that died may be replaced, their samples tried
        again; by default the batch raises ``WorkerError``.
      host_fields: Keys of a sample whose values are no arrays; None to look.
    """

    length: int
    sample_fn: Callable[[int], Tree]
    sample_spec: Tree = None
    ordering: Any = "shuffle"
    prefetch_size: int = 64
    host_fields: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.sample_fn):
            raise TypeError(
                f"DiskSampleSource: sample_fn must be a function, "
                f"not {self.sample_fn!r}"
            )
        self._check()
        self._start(self.length, self.sample_fn, SampleTask, self.sample_fn)


@public
@dataclass(frozen=True, eq=False)
class DatasetSource(FunctionSource):
    """The samples of any object with ``__len__`` and ``__getitem__``.

    One that has ``__getitems__`` is asked for several samples at once, which have
    ``timeout`` seconds each, all of them together. The arguments are those of
    ``DiskSampleSource``.
    """

    dataset: Any
    sample_spec: Tree = None
    ordering: Any = "shuffle"
    prefetch_size: int = 64
    host_fields: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not is_dataset(self.dataset):
            raise TypeError(
                "DatasetSource needs an object with __len__ and __getitem__, "
                f"not {type(self.dataset).__name__}"
            )
        self._check()
        several = getattr(self.dataset, "__getitems__", None)
        one = self.dataset.__getitem__
        if callable(several):
            self._start(len(self.dataset), one, SamplesTask, several)
        else:
            self._start(len(self.dataset), one, SampleTask, one)


def is_dataset(value: Any) -> bool:
    """Whether it can be asked for its length and for samples by their index."""
    return (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not isinstance(value, type | str | bytes | Mapping)
    )
