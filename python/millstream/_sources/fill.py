"""Samples that a Python function writes in place."""

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
    """A function that writes into the arrays of a row, after a source of nothing."""

    task: Any = field(default=None, kw_only=True)

    def bind(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        columns = self.task.outputs
        inputs = tuple(FieldSpec(n, d, tuple(s)) for n, d, s in plan.schema)
        made = self._started(replace(self.task, inputs=inputs))
        stage = _engine.function_transform(
            f"fill {number}", specs(inputs), specs(columns), made.native
        )
        after = {column.name: i for i, column in enumerate(columns)}
        return Bound(stage, after, columns, made)


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
    """A source whose samples ``fn(data[i], arrays, seed)`` writes in place.

    Args:
      fn: Writes one sample into the arrays that it is given, by name; ``seed`` is keyed
        by (seed, epoch, sample, stage). What it returns is dropped.
      data: A value for each sample, sent to the workers once.
      arrays: ``{name: jax.ShapeDtypeStruct}`` of one sample.
      ordering: "shuffle", "sequential", or an Order.
      workers: How many threads or processes call the function.
      worker_kind: "thread", or "process" where the function holds the GIL.
      timeout: Seconds that one sample may take; None for any time.
      restart_workers: How many processes that died may be replaced.
      clear: The arrays are zero before each call. False promises that the function
        writes every element, and saves the clearing.
    """
    if not is_dataset(data) or not len(data):
        raise ValueError("fill_source: data must be a sequence of at least one value")
    columns, _ = columns_of(dict(arrays), "fill_source")
    nothing = np.broadcast_to(np.zeros((), np.uint8), (len(data),))
    head = ArraySampleSource({"nothing": nothing}, ordering)
    stage = _FillTransform(
        fn,
        workers=workers,
        worker_kind=worker_kind,
        timeout=timeout,
        restart_workers=restart_workers,
        task=FillTask(fn, data, clear=clear, kept=False, outputs=columns),
    )
    return Pipeline(head, (stage,))
