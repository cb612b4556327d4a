"""Python functions that map samples, called by workers."""

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
    """A stage of Python's in the engine: what follows it, and who is to be kept."""

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
    """``fn(sample) -> sample`` in NumPy, in workers, for one sample at a time.

    An argument called ``seed`` (a whole number of 64 bits) or ``key`` (two uint32, as
    JAX's raw keys) is keyed by (seed, epoch, sample, stage), so that an augmentation is
    the same wherever it runs. The function has to be pure otherwise.

    Args:
      fn: From a pytree of NumPy arrays, which it may change, to another.
      element_spec: What it returns: a pytree of ``jax.ShapeDtypeStruct``; None to call
        it here with the first sample and look.
      workers: How many threads or processes call it.
      worker_kind: "thread", or "process" where the function holds the GIL.
      timeout: Seconds that one sample may take; None for any time.
      restart_workers: How many processes that died may be replaced.
    """

    fn: Callable[..., Tree]
    element_spec: Tree = None

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"PythonMapTransform needs a function, not {self.fn!r}")
        object.__setattr__(self, "_wants", _wanted(self.fn))

    def place(self, builder: Builder) -> None:
        builder.add_worker_stage(self.bind, self.workers)

    def bind(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        """Starts the workers; the engine's transform after the pipeline ``plan``."""
        inputs = tuple(FieldSpec(n, d, tuple(s)) for n, d, s in plan.schema)
        spec = self.element_spec
        if spec is None:
            spec = self._tried(plan, tree, inputs)
        columns, after = columns_of(spec, "PythonMapTransform")
        task = MapTask(
            self.fn,
            tree,
            after,
            self._wants,  # type: ignore[attr-defined]
            inputs=inputs,
            outputs=columns,
        )
        made = self._started(task)
        name = f"python({getattr(self.fn, '__name__', type(self.fn).__name__)})"
        stage = _engine.function_transform(
            f"{name} {number}",
            specs(inputs),
            specs(columns),
            made.native,
            bool(self._wants),  # type: ignore[attr-defined]
        )
        return Bound(stage, after, columns, made)

    def _started(self, task: Task) -> WorkerPool:
        made = self._pool_for(task)
        # Weakly: a stage is a description, and workers end with their loader.
        self.__dict__.setdefault("_pools", weakref.WeakSet()).add(made)
        return made

    def _tried(
        self, plan: _engine.Plan, tree: Tree, inputs: tuple[FieldSpec, ...]
    ) -> Tree:
        """What it makes of the first sample."""
        dtypes = [column.dtype for column in inputs]
        loader = _engine.loader(plan, dtypes, 1, 0)
        *fields, _ = loader.batch(state_words(plan.check_word, 0))

        def one() -> Tree:
            sample = jax.tree.map(lambda position: np.array(fields[position][0]), tree)
            return self.fn(sample, **drawn(self._wants, 0))  # type: ignore[attr-defined]

        return first_sample("PythonMapTransform", one, 9)

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return [pid for made in self.__dict__.get("_pools", []) for pid in made.pids]


def _wanted(fn: Callable[..., Any]) -> str:
    """Which of "seed" and "key" the function takes, if any."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return ""
    wanted = [name for name in ("seed", "key") if name in parameters]
    if len(wanted) > 1:
        raise TypeError(
            f"PythonMapTransform: {fn!r} takes both seed and key; it gets one of them"
        )
    return wanted[0] if wanted else ""
