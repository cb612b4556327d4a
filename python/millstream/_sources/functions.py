"""Samples that Python functions make: sources and a stage over crews of workers."""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from millstream import _engine
from millstream._core.arguments import check_unmasked, whole
from millstream._delivery.jit import dtype_named
from millstream._order.orders import order_of
from millstream._run.pipeline import Pipeline, Source, Tree, WorkerStage
from millstream._run.state import state_words
from millstream._sources.arrays import ArraySampleSource
from millstream._sources.ordered import OrderedSource, name_of, names_of
from millstream._workers.pools import Crew, crew, staffing
from millstream._workers.tasks import (
    Column,
    FillTask,
    MapTask,
    SamplesTask,
    SampleTask,
    Task,
    drawn,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Staffed:
    """Who calls a function: the arguments of everything that has workers."""

    workers: int = 1
    worker_kind: str = "thread"
    timeout: float | None = None
    restart_workers: int = 0

    def _crew_for(self, task: Task) -> Crew:
        return crew(
            task,
            self.workers,
            self.worker_kind,
            timeout=self.timeout,
            restart_workers=self.restart_workers,
        )


class FunctionSource(Staffed, OrderedSource):
    """A source whose samples a function makes in workers.

    Subclasses are dataclasses with the fields ``ordering``, ``prefetch_size`` and
    ``host_fields`` of ``DiskSampleSource``, and call ``_check`` and ``_start``.
    """

    prefetch_size: int
    host_fields: tuple[str, ...] | None
    _beside: tuple[str, ...]
    _crew: Crew

    def _check(self) -> None:
        """What can be refused before the samples are asked for anything."""
        name = f"{type(self).__name__}: prefetch_size"
        size = whole(name, self.prefetch_size, 1)
        object.__setattr__(self, "prefetch_size", size)
        order_of(self.ordering)
        staffing(self.workers, self.worker_kind, self.restart_workers)

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
            sample = _first_sample(name, lambda: one(0), 5)
            apart = _not_arrays(sample) if apart is None else tuple(apart)
            spec = _without(sample, apart)
        columns, tree = columns_of(spec, name)
        made = task(fn, tree, tuple(apart or ()), outputs=columns)
        workers = self._crew_for(made)
        self.__dict__.update(_beside=made.beside, _crew=workers)
        native = _engine.made_source(length, _specs(columns), workers.maker)
        self._open(native, tree)

    @property
    def prefetch_samples(self) -> int:
        return max(self.prefetch_size, 2 * self.workers)

    @property
    def beside(self) -> tuple[str, ...]:
        """Keys of samples whose values are no arrays: lists beside a batch."""
        return self._beside

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return self._crew.pids

    def close(self) -> None:
        """Ends the workers; what is asked of them from then on is refused."""
        self._crew.close()


@dataclass(frozen=True, eq=False)
class DiskSampleSource(FunctionSource):
    """``length`` samples, each made by ``sample_fn(index)`` in a worker.

    The function has to be pure: a sample that differs from call to call differs
    between the Python loop, jit and a resumed run. A value of a sample that is no array
    (a path, a string) reaches the Python loop as a list beside the batch.

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


class Bound(NamedTuple):
    """A stage of Python's in the engine: what follows it, and who is to be kept."""

    transform: _engine.Transform
    tree: Tree
    columns: tuple[Column, ...]
    crew: Crew

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def spec(self) -> Tree:
        """A ``jax.ShapeDtypeStruct`` for each leaf of a sample."""
        specs = [
            jax.ShapeDtypeStruct(c.shape, dtype_named(c.dtype)) for c in self.columns
        ]
        return jax.tree.map(lambda position: specs[position], self.tree)


@dataclass(frozen=True, eq=False)
class PythonMapTransform(Staffed, WorkerStage):
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

    def bound(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        inputs = tuple(Column(n, d, tuple(s)) for n, d, s in plan.schema)
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
        made = self._staffed(task)
        name = f"python({getattr(self.fn, '__name__', type(self.fn).__name__)})"
        stage = _engine.made_transform(
            f"{name} {number}",
            _specs(inputs),
            _specs(columns),
            made.maker,
            bool(self._wants),  # type: ignore[attr-defined]
        )
        return Bound(stage, after, columns, made)

    def _staffed(self, task: Task) -> Crew:
        made = self._crew_for(task)
        # Weakly: a stage is a description, and workers end with their loader.
        self.__dict__.setdefault("_crews", weakref.WeakSet()).add(made)
        return made

    def _tried(
        self, plan: _engine.Plan, tree: Tree, inputs: tuple[Column, ...]
    ) -> Tree:
        """What it makes of the first sample."""
        dtypes = [column.dtype for column in inputs]
        loader = _engine.loader(plan, dtypes, 1, 0)
        *fields, _ = loader.batch(state_words(plan.check_word, 0))

        def one() -> Tree:
            sample = jax.tree.map(lambda position: np.array(fields[position][0]), tree)
            return self.fn(sample, **drawn(self._wants, 0))  # type: ignore[attr-defined]

        return _first_sample("PythonMapTransform", one, 6)

    @property
    def pids(self) -> list[int]:
        """The worker processes that run now."""
        return [pid for made in self.__dict__.get("_crews", []) for pid in made.pids]

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        raise TypeError(
            "PythonMapTransform runs in workers before anything is traced: put it "
            "before MapTransform and HostCallbackTransform"
        )


@dataclass(frozen=True, eq=False)
class _FillTransform(PythonMapTransform):
    """A function that writes into the arrays of a row, after a source of nothing."""

    task: Any = field(default=None, kw_only=True)

    def bound(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        columns = self.task.outputs
        inputs = tuple(Column(n, d, tuple(s)) for n, d, s in plan.schema)
        made = self._staffed(replace(self.task, inputs=inputs))
        stage = _engine.made_transform(
            f"fill {number}", _specs(inputs), _specs(columns), made.maker
        )
        after = {column.name: i for i, column in enumerate(columns)}
        return Bound(stage, after, columns, made)


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


def _first_sample(who: str, make: Callable[[], Any], stacklevel: int) -> Any:
    """What ``make`` returns for sample 0.

    It is called twice and warns where the samples differ, or where a list of numbers
    would become as many fields.
    """
    sample, again = make(), make()
    differs = _first_difference(sample, again)
    if differs is not None:
        warnings.warn(
            f"{who}: two calls for sample 0 gave different values{differs}. A sample "
            "has to depend on its index alone, or the same state gives other batches "
            "when it is resumed. Draw random numbers from the seed that "
            "PythonMapTransform gives to a function fn(sample, seed)",
            UserWarning,
            stacklevel=stacklevel,
        )
    for path, leaf in jax.tree_util.tree_flatten_with_path(sample, _is_numbers)[0]:
        if _is_numbers(leaf):
            where = f"'{name_of(path)}' of a sample" if path else "a sample"
            warnings.warn(
                f"{who}: {where} is a list of {len(leaf)} numbers, which becomes "
                f"{len(leaf)} fields of one number each. Return np.asarray(...) of the "
                "list for one field",
                UserWarning,
                stacklevel=stacklevel,
            )
            break
    return sample


def _first_difference(sample: Any, again: Any) -> str | None:
    """Where two samples differ, as " of 'x'"; None where they do not."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(sample)
    others, other_structure = jax.tree.flatten(again)
    if bool(structure != other_structure):  # type: ignore[operator]
        return ""
    for (path, leaf), other in zip(leaves, others, strict=True):
        a, b = np.asarray(leaf), np.asarray(other)
        if a.dtype.kind == b.dtype.kind == "O":
            continue
        if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
            return f" of '{name_of(path)}'" if path else ""
    return None


def _is_numbers(node: Any) -> bool:
    return (
        type(node) is list
        and len(node) > 1
        and all(isinstance(value, int | float | complex | np.number) for value in node)
    )


def columns_of(spec: Tree, who: str) -> tuple[tuple[Column, ...], Tree]:
    """The columns of a sample and the tree of their positions.

    Dtypes are those that JAX will have, so that workers write them in place.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(spec)
    if not leaves:
        raise ValueError(f"{who}: a sample needs at least one array; this has none")
    columns = []
    for name, (_, leaf) in zip(names_of(who, spec), leaves, strict=True):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            check_unmasked(name, leaf)
            leaf = np.asarray(leaf)
        if leaf.dtype.kind in "OUSMm":
            raise TypeError(
                f"{who}: {name!r} is {leaf.dtype}, which is no array for JAX; values "
                "that are not arrays stand under keys of a dict (host_fields)"
            )
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        columns.append(Column(name, dtype.name, tuple(leaf.shape)))
    return tuple(columns), jax.tree.unflatten(structure, range(len(columns)))


def _specs(columns: tuple[Column, ...]) -> list[tuple[str, str, list[int]]]:
    return [column.spec for column in columns]


def _not_arrays(sample: Any) -> tuple[str, ...]:
    """The keys of a dict whose values JAX has no array for."""
    if not isinstance(sample, Mapping):
        return ()

    def foreign(value: Any) -> bool:
        return any(np.asarray(x).dtype.kind in "OUSMm" for x in jax.tree.leaves(value))

    return tuple(key for key, value in sample.items() if foreign(value))


def _without(sample: Any, keys: tuple[str, ...]) -> Any:
    if not keys:
        return sample
    if not isinstance(sample, Mapping):
        raise TypeError(
            f"host_fields={keys} are keys of a dict, but a sample is a "
            f"{type(sample).__name__}"
        )
    return {key: value for key, value in sample.items() if key not in keys}


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
