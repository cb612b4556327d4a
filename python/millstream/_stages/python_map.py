"""The stage that maps samples by a Python function, which workers call."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._run.state import state_words
from millstream._stages.stage import Stage
from millstream._workers.first_sample import columns_of, first_sample, specs
from millstream._workers.pools import UsesWorkers, WorkerPool
from millstream._workers.tasks import FieldSpec, MapTask, Task, drawn

if TYPE_CHECKING:
    from millstream._run.builder import Builder


class Bound(NamedTuple):
    """The engine's transform of a Python stage, its output fields and its workers."""

    transform: _engine.Transform
    tree: Tree
    columns: tuple[FieldSpec, ...]
    pool: WorkerPool

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


@public
@dataclass(frozen=True, eq=False)
class PythonMapTransform(UsesWorkers, Stage):
    """Maps one sample at a time by ``fn(sample) -> sample``, with NumPy, in workers.

    If ``fn`` has an argument ``seed`` (a 64-bit integer) or ``key`` (two uint32, like a
    raw JAX key), workers pass random bits for it. They depend only on the seed, the
    epoch, the sample and the stage, so a random augmentation is the same in every
    worker. Apart from this argument the function must be pure.

    Args:
      fn: Takes a pytree of NumPy arrays, which it may modify, and returns a pytree.
      element_spec: The pytree of ``jax.ShapeDtypeStruct`` that ``fn`` returns. By
        default, building the pipeline calls ``fn`` with the first sample to find out.
      workers: The number of threads or processes that call ``fn``.
      worker_kind: "thread", or "process" for a function that holds the GIL.
      timeout: The seconds that one sample may take; None for no limit.
      restart_workers: The number of processes that may be replaced after they died.
    """

    fn: Callable[..., Tree]
    element_spec: Tree = None

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"PythonMapTransform needs a function, not {self.fn!r}")
        object.__setattr__(self, "_wants", _random_argument(self.fn))

    def place(self, builder: Builder) -> None:
        builder.add_worker_stage(self.bind, self.workers)

    def bind(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        """Starts workers, and returns the engine's transform to put after ``plan``."""
        inputs = tuple(FieldSpec(n, d, tuple(s)) for n, d, s in plan.schema)
        spec = self.element_spec
        if spec is None:
            spec = self._spec_of_first(plan, tree, inputs)
        columns, after = columns_of(spec, "PythonMapTransform")
        task = MapTask(
            self.fn,
            tree,
            after,
            self._wants,  # type: ignore[attr-defined]
            inputs=inputs,
            outputs=columns,
        )
        pool = self._started(task)
        name = f"python({getattr(self.fn, '__name__', type(self.fn).__name__)})"
        stage = _engine.function_transform(
            f"{name} {number}",
            specs(inputs),
            specs(columns),
            pool.native,
            bool(self._wants),  # type: ignore[attr-defined]
        )
        return Bound(stage, after, columns, pool)

    def _started(self, task: Task) -> WorkerPool:
        pool = self._pool_for(task)
        # Weak references, because the workers must end with their loader.
        self.__dict__.setdefault("_pools", weakref.WeakSet()).add(pool)
        return pool

    def _spec_of_first(
        self, plan: _engine.Plan, tree: Tree, inputs: tuple[FieldSpec, ...]
    ) -> Tree:
        """Calls ``fn`` with the first sample and returns the spec of the result."""
        dtypes = [column.dtype for column in inputs]
        loader = _engine.loader(plan, dtypes, 1, 0)
        *fields, _ = loader.batch(state_words(plan.check_word, 0))

        def one() -> Tree:
            sample = jax.tree.map(lambda position: np.array(fields[position][0]), tree)
            return self.fn(sample, **drawn(self._wants, 0))  # type: ignore[attr-defined]

        return first_sample("PythonMapTransform", one, 9)

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [pid for pool in self.__dict__.get("_pools", []) for pid in pool.pids]


def _random_argument(fn: Callable[..., Any]) -> str:
    """Returns "seed" or "key" if the function has such an argument, and else ""."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return ""
    wanted = [name for name in ("seed", "key") if name in parameters]
    if len(wanted) > 1:
        raise TypeError(
            f"PythonMapTransform: {fn!r} takes both seed and key. Remove one of them."
        )
    return wanted[0] if wanted else ""
