"""The stage that maps samples by a Python function, which workers call."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._sources.ordered import sample_of_plan
from millstream._stages.stage import Stage
from millstream._workers.first_sample import (
    columns_of,
    first_sample,
    host_fields_of,
    specs,
    without_keys,
)
from millstream._workers.pools import UsesWorkers, WorkerPool
from millstream._workers.randomness import random_argument
from millstream._workers.rows import FieldSpec
from millstream._workers.tasks import MapTask, Task, drawn

if TYPE_CHECKING:
    from millstream._run.builder import Builder


class Bound(NamedTuple):
    """The engine's transform of a Python stage, its output fields and its workers."""

    transform: _engine.Transform
    tree: Tree
    columns: tuple[FieldSpec, ...]
    pool: WorkerPool
    host_fields: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


@public
@dataclass(frozen=True, eq=False)
class PythonMapTransform(UsesWorkers, Stage):
    """Maps one sample at a time by ``fn(sample) -> sample``, with NumPy, in workers.

    If ``fn`` has an argument ``rng`` (a NumPy ``Generator``), ``seed`` (a 64-bit
    integer) or ``key`` (two uint32, like a raw JAX key), workers pass random bits for
    it. They depend only on the seed, the epoch, the sample and the stage, so a random
    augmentation is the same in every worker. Apart from this argument the function must
    be pure. ``rng`` is valid only during the call. If it has a default, ``fn`` gets the
    default.

    If samples have host fields, such as strings, ``sample`` contains them. The result
    may contain host fields too. Those that it does not contain are dropped. A function
    that receives host fields is not called for padded rows.

    Args:
      fn: Takes a pytree of NumPy arrays, which it may modify, and returns a pytree.
      element_spec: The pytree of ``jax.ShapeDtypeStruct`` that ``fn`` returns, without
        host fields. By default, building the pipeline calls ``fn`` with the first
        sample to find out. If that call raises an error, it tries the next samples.
      workers: The number of threads or processes that call ``fn``.
      worker_kind: "thread", or "process" for a function that holds the GIL.
      timeout: The seconds that one sample may take; None for no limit.
      restart_workers: The number of processes that may be replaced after they died.
      host_fields: The keys of the result whose values are not arrays. None finds them
        in the result for the first sample; with ``element_spec`` it means no key.
    """

    fn: Callable[..., Tree]
    element_spec: Tree = None
    host_fields: tuple[str, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(f"PythonMapTransform needs a function, not {self.fn!r}")
        wants = random_argument("PythonMapTransform", self.fn, ("seed", "key"))
        object.__setattr__(self, "_wants", wants)

    def place(self, builder: Builder) -> None:
        builder.add_worker_stage(self)

    def bind(
        self,
        plan: _engine.Plan,
        tree: Tree,
        number: int,
        host_inputs: tuple[str, ...] = (),
    ) -> Bound:
        """Starts workers, and returns the engine's transform to put after ``plan``.

        ``host_inputs`` are the host fields of its samples.
        """
        inputs = tuple(FieldSpec(n, d, tuple(s)) for n, d, s in plan.schema)
        spec, host_fields = self.element_spec, self.host_fields
        if spec is None:
            sample = self._first_result(plan, tree)
            if host_fields is None:
                host_fields = host_fields_of(sample)
            host_fields = tuple(host_fields)
            spec = without_keys(sample, host_fields)
        host_fields = tuple(host_fields or ())
        columns, after = columns_of(spec, "PythonMapTransform", host_fields)
        task = MapTask(
            self.fn,
            tree,
            after,
            self._wants,  # type: ignore[attr-defined]
            bool(host_inputs),
            host_fields,
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
        return Bound(stage, after, columns, pool, host_fields)

    def _started(self, task: Task) -> WorkerPool:
        pool = self._pool_for(task)
        # Weak references, because the workers must end with their loader.
        self.__dict__.setdefault("_pools", weakref.WeakSet()).add(pool)
        return pool

    def _first_result(self, plan: _engine.Plan, tree: Tree) -> Tree:
        """Calls ``fn`` with the first sample and returns the result."""

        def one(index: int) -> Tree:
            sample = sample_of_plan(plan, tree, index)
            return self.fn(sample, **drawn(self._wants, 0))  # type: ignore[attr-defined]

        return first_sample("PythonMapTransform", one, plan.epoch_length, 10)

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a pickle or a copy contains: all but the running workers."""
        return {k: v for k, v in self.__dict__.items() if k != "_pools"}

    @property
    def pids(self) -> list[int]:
        """The ids of the running worker processes."""
        return [pid for pool in self.__dict__.get("_pools", []) for pid in pool.pids]
