"""Sources whose samples Python functions make in worker threads or processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._order.orders import order_of
from millstream._sources.advice import advice_for, is_table
from millstream._sources.ordered import OrderedSource
from millstream._workers.first_sample import (
    columns_of,
    first_sample,
    host_fields_of,
    specs,
    without_keys,
)
from millstream._workers.pools import UsesWorkers, WorkerPool, checked_workers
from millstream._workers.randomness import random_argument
from millstream._workers.tasks import SamplesTask, SampleTask, Task, drawn


class FunctionSource(UsesWorkers, OrderedSource):
    """A source whose samples a function makes in workers.

    A subclass is a dataclass with the fields ``sample_spec``, ``ordering``,
    ``prefetch_size`` and ``host_fields`` of ``DiskSampleSource``. Its ``__post_init__``
    calls ``_check``, then ``_start``.
    """

    prefetch_size: int
    host_fields: tuple[str, ...] | None
    _host_field_names: tuple[str, ...]
    _pool: WorkerPool

    def _check(self) -> None:
        """Raises ``ValueError`` for wrong arguments, before any function is called."""
        name = f"{type(self).__name__}: prefetch_size"
        size = whole(name, self.prefetch_size, 1)
        object.__setattr__(self, "prefetch_size", size)
        order_of(self.ordering)
        checked_workers(self.workers, self.worker_kind, self.restart_workers)

    def _start(
        self,
        length: int,
        one: Callable[..., Any],
        task: type[SampleTask],
        fn: Any,
        wants: str = "",
    ) -> None:
        """Creates a worker pool that runs ``task(fn, ...)`` for ``length`` samples.

        ``one(i)`` makes sample i in this process. Without a ``sample_spec``, ``_start``
        calls ``one(0)`` to find the fields, or the next ones if it raises an error.
        ``wants`` is the name of the random argument of both functions, or empty.
        """
        name = type(self).__name__
        if isinstance(length, bool) or not isinstance(length, int | np.integer):
            raise TypeError(f"{name}: length must be a whole number, not {length!r}")
        if length < 1:
            raise ValueError(f"{name}: length must be at least 1, not {length}")
        spec = self.sample_spec  # type: ignore[attr-defined]
        host_fields = self.host_fields
        if spec is None:

            def make(i: int) -> Any:
                seed = _engine.sample_seed(_engine.SOURCE_STAGE, i)
                return one(i, **drawn(wants, seed))

            sample = first_sample(name, make, length, 5)
            if host_fields is None:
                host_fields = host_fields_of(sample)
            host_fields = tuple(host_fields)
            spec = without_keys(sample, host_fields)
        names = tuple(host_fields or ())
        columns, tree = columns_of(spec, name, names)
        row_task = task(fn, tree, names, wants, outputs=columns, length=int(length))
        stage = _engine.SOURCE_STAGE if wants else None
        self._start_task(length, row_task, tree, names, stage)

    def _start_task(
        self,
        length: int,
        task: Task,
        tree: Tree,
        host_fields: tuple[str, ...],
        stage: int | None,
    ) -> None:
        """Creates a worker pool that runs ``task`` for ``length`` samples.

        If there is a ``stage``, the workers get a seed for each sample.
        """
        pool = self._pool_for(task)
        self.__dict__.update(_host_field_names=host_fields, _pool=pool)
        native = _engine.function_source(
            length, specs(task.outputs), pool.native, stage
        )
        self._open(native, tree)

    @property
    def prefetch_samples(self) -> int:
        return max(self.prefetch_size, 2 * self.workers)

    @property
    def host_field_names(self) -> tuple[str, ...]:
        """The keys of host fields, whose values are not arrays."""
        return self._host_field_names

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return self._pool.pids

    def close(self) -> None:
        """Stops the workers. Reading samples raises an error from then on."""
        self._pool.close()


@public
@dataclass(frozen=True, eq=False)
class DiskSampleSource(FunctionSource):
    """``length`` samples, each made by ``sample_fn(index)`` in a worker.

    The function must be pure: every call with the same arguments must return the same
    sample. Otherwise batches differ between the Python loop, jit and a resumed run.

    For random samples, give the function an argument ``rng`` (a NumPy ``Generator``,
    valid only during the call), ``seed`` (a 64-bit integer) or ``key`` (two uint32,
    like a raw JAX key) without a default. It depends only on the seed, the epoch and
    the index in this source, also if the source is part of a subset, a concatenation
    or a mixture. ``source[i]`` has seed 0 and epoch 0.

    A value that is not an array, such as a path or a string, is a host field: the
    Python loop receives a list with one value per row, and the function of a
    ``PythonMapTransform`` receives the value. A sample with host fields is a dict.

    Args:
      length: The number of samples.
      sample_fn: A function from an index to a pytree of NumPy arrays.
      sample_spec: A pytree of ``jax.ShapeDtypeStruct`` that describes a sample. None
        makes sample 0 when the source is built, and describes it. If that raises an
        error, it tries the next samples.
      ordering: "shuffle", "sequential", or an Order.
      prefetch_size: How many samples to prefetch if the loader's ``prefetch`` is None.
      workers: The number of threads or processes that call the function.
      worker_kind: "thread", or "process" if the function holds the GIL.
      timeout: The time limit for one sample in seconds. None means no limit. A worker
        process that exceeds it is replaced. A thread cannot be stopped, so the source
        is closed.
      restart_workers: How many worker processes may be replaced after they died. Their
        samples are tried again. With 0, the default, the batch raises ``WorkerError``.
      host_fields: The keys of a sample whose values are not arrays. None finds them in
        the first sample.
    """

    length: int
    sample_fn: Callable[..., Tree]
    sample_spec: Tree = None
    ordering: Any = "shuffle"
    prefetch_size: int = 64
    host_fields: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.sample_fn):
            raise TypeError(
                "DiskSampleSource: sample_fn must be a function, "
                f"not {self.sample_fn!r}"
            )
        self._check()
        wants = random_argument("DiskSampleSource", self.sample_fn)
        self._start(self.length, self.sample_fn, SampleTask, self.sample_fn, wants)


@public
@dataclass(frozen=True, eq=False)
class DatasetSource(FunctionSource):
    """The samples of any object with ``__len__`` and ``__getitem__``.

    If the object has ``__getitems__``, a worker calls it for several samples at once.
    The time limit of such a call is ``timeout`` times the number of samples. The other
    arguments are those of ``DiskSampleSource``.
    """

    dataset: Any
    sample_spec: Tree = None
    ordering: Any = "shuffle"
    prefetch_size: int = 64
    host_fields: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not is_dataset(self.dataset):
            raise TypeError(
                "DatasetSource: expected an object with __len__ and __getitem__, "
                f"found {type(self.dataset).__name__}. {advice_for(self.dataset)}."
            )
        self._check()
        several = getattr(self.dataset, "__getitems__", None)
        one = self.dataset.__getitem__
        if callable(several):
            self._start(len(self.dataset), one, SamplesTask, several)
        else:
            self._start(len(self.dataset), one, SampleTask, one)


def is_dataset(value: Any) -> bool:
    """Whether ``value`` has a length and returns samples by index."""
    return (
        hasattr(value, "__len__")
        and hasattr(value, "__getitem__")
        and not isinstance(value, type | str | bytes | Mapping | np.ndarray | jax.Array)
        and not is_table(value)
    )
