"""A source whose samples a Python function writes into given arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._run.pipeline import Pipeline
from millstream._sources.arrays import ArraySampleSource
from millstream._sources.functions import is_dataset
from millstream._sources.source import Source
from millstream._stages.python_map import Bound, PythonMapTransform
from millstream._workers.first_sample import columns_of, specs
from millstream._workers.tasks import FieldSpec, FillTask


@dataclass(frozen=True, eq=False)
class _FillTransform(PythonMapTransform):
    """A stage whose function writes a sample into the arrays of its row.

    It follows a source with one unused field, because the function needs no input row.
    """

    task: Any = field(default=None, kw_only=True)

    def bind(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        columns = self.task.outputs
        inputs = tuple(FieldSpec(n, d, tuple(s)) for n, d, s in plan.schema)
        pool = self._started(replace(self.task, inputs=inputs))
        stage = _engine.function_transform(
            f"fill {number}", specs(inputs), specs(columns), pool.native
        )
        after = {column.name: i for i, column in enumerate(columns)}
        return Bound(stage, after, columns, pool)


@public
def fill_source(
    fn: Callable[[Any, Mapping[str, np.ndarray], int | None], Any],
    data: Sequence[Any],
    arrays: Mapping[str, Any],
    *,
    ordering: Any = "shuffle",
    workers: int = 1,
    worker_kind: str = "thread",
    timeout: float | None = None,
    restart_workers: int = 0,
    clear: bool = True,
) -> Source:
    """Returns a source of samples that a function writes in place.

    To make sample i, a worker calls ``fn(data[i], arrays, seed)``.

    Args:
      fn: A function that writes one sample into ``arrays``, a dict of NumPy arrays.
        ``seed`` is an integer that depends only on the run's seed, the epoch, the
        sample and the stage. The return value is ignored.
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
    if not is_dataset(data) or not len(data):
        raise ValueError("fill_source: data must be a sequence with at least one value")
    columns, _ = columns_of(dict(arrays), "fill_source")
    nothing = np.broadcast_to(np.zeros((), np.uint8), (len(data),))
    head = ArraySampleSource({"nothing": nothing}, ordering)
    stage = _FillTransform(
        fn,
        workers=workers,
        worker_kind=worker_kind,
        timeout=timeout,
        restart_workers=restart_workers,
        task=FillTask(fn, data, clear=clear, returns_value=False, outputs=columns),
    )
    return Pipeline(head, (stage,))
