"""A source whose samples a Python function writes into given arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream import _engine
from millstream._core.public import public
from millstream._sources.functions import FunctionSource, is_dataset
from millstream._workers.first_sample import columns_of
from millstream._workers.randomness import third_argument
from millstream._workers.tasks import FillTask


@public
def fill_source(
    fn: Callable[[Any, Mapping[str, np.ndarray], Any], Any],
    data: Sequence[Any],
    arrays: Mapping[str, Any],
    *,
    ordering: Any = "shuffle",
    workers: int = 1,
    worker_kind: str = "thread",
    timeout: float | None = None,
    restart_workers: int = 0,
    clear: bool = True,
) -> FillSource:
    """Returns a source of samples that a function writes in place.

    To make sample i, a worker calls ``fn(data[i], arrays, seed)``.

    Args:
      fn: A function that writes one sample into ``arrays``, a dict of NumPy arrays.
        ``seed`` is an integer that depends only on the run's seed, the epoch and the
        index i. If the third parameter is named ``rng``, it is a NumPy ``Generator``
        instead, which is valid only during the call. If it is named ``key``, it is two
        uint32, like a raw JAX key. The return value is ignored.
      data: A sequence with one value per sample. Worker processes receive it once.
      arrays: ``{name: jax.ShapeDtypeStruct}`` of one sample.
      ordering: "shuffle", "sequential", or an Order.
      workers: The number of threads or processes that call the function.
      worker_kind: "thread", or "process" if the function holds the GIL.
      timeout: The time limit for one sample in seconds. None means no limit.
      restart_workers: How many worker processes may be replaced after they died.
      clear: True sets the arrays to zero before each call. Pass False, which is faster,
        if the function writes every element.
    """
    return FillSource(
        fn,
        data,
        arrays,
        ordering,
        clear,
        workers=workers,
        worker_kind=worker_kind,
        timeout=timeout,
        restart_workers=restart_workers,
    )


@dataclass(frozen=True, eq=False)
class FillSource(FunctionSource):
    """The result of `fill_source`."""

    fn: Callable[[Any, Mapping[str, np.ndarray], Any], Any]
    data: Sequence[Any] = field(repr=False)
    sample_spec: Mapping[str, Any]
    ordering: Any = "shuffle"
    clear: bool = True

    prefetch_size = 64

    def __post_init__(self) -> None:
        if not is_dataset(self.data) or not len(self.data):
            raise ValueError(
                "fill_source: data must be a sequence with at least one value"
            )
        self._check()
        columns, tree = columns_of(dict(self.sample_spec), "fill_source")
        task = FillTask(
            self.fn,
            self.data,
            clear=self.clear,
            returns_value=False,
            wants=third_argument(self.fn),
            outputs=columns,
        )
        # The number of the first Python function, although this is a source: its seeds
        # must never change.
        self._start_task(len(self.data), task, tree, (), _engine.FUNCTION_STAGE)
