"""Descriptions: sources, stages and the pipelines that they make."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream import _engine

if TYPE_CHECKING:
    from millstream._order.orders import Order
    from millstream._run.built import Program
    from millstream._sources.functions import Bound

_brief = reprlib.Repr()
_brief.maxother = 200

Tree = Any
"""A pytree. Where fields are meant, its leaves are their positions in the engine."""


class Description:
    """A base of frozen dataclasses that are compared by value and hashed by identity.

    The equality of `dataclass` cannot compare fields that are arrays.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)
            for a, b in (
                (getattr(self, field.name), getattr(other, field.name))
                for field in fields(self)  # type: ignore[arg-type]
                if field.compare
            )
        )

    __hash__ = object.__hash__


class Source:
    """What a pipeline is: something with steps, a state and a next value.

    Sources of samples are pipelines of no stages, and a stage called with a source
    gives a longer one, so every pipeline can be stepped by itself.
    """

    @property
    def head(self) -> SampleSource:
        """Where the samples come from."""
        raise TypeError(f"{type(self).__name__} is not a source of its own")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is done to them, in order."""
        return ()

    @property
    def program(self) -> Program:
        """The pipeline at work; made when first asked for."""
        from millstream._run.built import Program

        made = self.__dict__.get("_program")
        if made is None:
            made = Program(self.head, self.stages)
            self.__dict__["_program"] = made
        return made

    @property
    def steps_per_epoch(self) -> int:
        """How many values an epoch has."""
        return self.program.steps

    def init_state(self, key: Any = None) -> Any:
        """The state at the first step: from an int, a raw key or a typed key."""
        return self.program.init_state(key)

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        """``(value, mask, state)``: the value that ``state`` names and what follows."""
        from millstream._delivery.host import HostDoor, stepper

        step = self.__dict__.get("_step")
        if step is None:
            step = self.__dict__["_step"] = stepper(HostDoor(self.program))
        value, state, mask = step(state)
        return value, mask, state

    def element_spec(self) -> Tree:
        """A ``jax.ShapeDtypeStruct`` for each leaf of a value."""
        return self.program.element_spec()


class SampleSource(Source):
    """Where samples live. Says what the engine is to read, and in which order."""

    @property
    def head(self) -> SampleSource:
        return self

    @property
    def num_samples(self) -> int:
        """How many samples there are."""
        raise TypeError(f"{type(self).__name__} does not say how many samples it has")

    @property
    def order(self) -> Order:
        """Which sample comes when."""
        raise TypeError(f"{type(self).__name__} does not say its order")

    def native(self) -> tuple[_engine.Source, Tree, list[str]]:
        """The engine's source, the tree of its fields, and their names."""
        raise TypeError(f"{type(self).__name__} has no source in the engine")

    def arrays(self) -> list[Any] | None:
        """The samples as JAX arrays, one a field, where they can be had at once."""
        return None

    def device(self) -> Any:
        """The accelerator that holds the samples, or None for the host."""
        return None

    @property
    def beside(self) -> tuple[str, ...]:
        """Keys of samples whose values are no arrays and travel beside a batch."""
        return ()

    @property
    def prefetch_samples(self) -> int | None:
        """How many samples to make ahead where the loader does not say."""
        return None


class Pipeline(Source):
    """A source and the stages after it."""

    def __init__(self, head: SampleSource, stages: tuple[Stage, ...]) -> None:
        self._head = head
        self._stages = stages

    @property
    def head(self) -> SampleSource:
        return self._head

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self._stages

    def __repr__(self) -> str:
        return f"Pipeline({[self._head, *self._stages]})"


class Stage(Description):
    """Something done to samples or to batches of them.

    A stage is a description. It says what the engine is to do (``native``) and the same
    for XLA (``trace``), which is used where an earlier stage could not be native.
    """

    def __call__(self, inner: Source) -> Pipeline:
        """The pipeline ``inner`` with this stage at its end.

        Raises what a loader of it would, but for what takes tracing or workers to know.
        """
        if not isinstance(inner, Source):
            raise TypeError(
                f"{type(self).__name__} goes onto a source, not {type(inner).__name__}"
            )
        from millstream._stages.composed import check

        longer = Pipeline(inner.head, (*inner.stages, self))
        check(longer.head, longer.stages)
        return longer

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]] | None:
        """The engine's transforms and the tree and names after them; None if none."""
        del tree, names, batched
        return None

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        """What becomes of ``value`` in XLA: one sample, or a batch of them."""
        raise TypeError(f"{type(self).__name__} cannot be traced")


class WorkerStage(Stage):
    """A stage that workers do. Its modules are loaded only where there is one."""

    workers: int

    def bound(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        """The engine's transform after the pipeline ``plan``, which has no rows yet."""
        raise NotImplementedError


def keyed(tree: Tree, key: str, stage: str) -> Any:
    """What stands under ``key``: one array, or its field.

    Raises ``TypeError`` or ``KeyError`` naming the stage and the keys that exist.
    """
    if not isinstance(tree, Mapping):
        raise TypeError(
            f"{stage} needs samples that are dicts, to find {key!r} in them; "
            f"these are {type(tree).__name__}"
        )
    if key not in tree:
        raise KeyError(f"{stage}: there is no key {key!r}, only {sorted(tree)}")
    found = tree[key]
    if isinstance(found, Mapping | list | tuple):
        raise TypeError(f"{stage}: {key!r} is a {type(found).__name__}, not one array")
    return found


def with_key(tree: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The same dict with another value under ``key``."""
    return {**tree, key: value}


def assembled(pipeline: Sequence[Any] | Source) -> Source:
    """One source from a list of a source and stages, or from a source.

    A stage of the user's own is a callable from a source to a longer one.
    """
    if isinstance(pipeline, Source):
        return pipeline
    if isinstance(pipeline, str | bytes | Mapping) or not hasattr(pipeline, "__iter__"):
        raise TypeError(
            "a pipeline is a source, or a list of a source and stages, "
            f"not {type(pipeline).__name__}"
        )
    entries = list(pipeline)
    if not entries:
        raise ValueError("a pipeline needs at least a source; this list is empty")
    source = entries[0]
    if not isinstance(source, Source):
        from millstream._sources.functions import DatasetSource, is_dataset

        if is_dataset(source) and not isinstance(source, list | tuple):
            source = DatasetSource(source)
    if not isinstance(source, Source):
        raise TypeError(
            "a pipeline begins with a source, such as ArraySampleSource, or "
            f"DatasetSource(...) around a sequence; entry 0 is {_described(source)}"
        )
    for position, stage in enumerate(entries[1:], start=1):
        source = _joined(source, stage, position)
    return source


def _joined(source: Source, stage: Any, position: int) -> Source:
    if isinstance(stage, type | Source) or not callable(stage):
        raise TypeError(
            f"entry {position} of the pipeline is not a stage: {_described(stage)}"
        )
    if isinstance(stage, Stage):  # the loader is to check the whole
        return Pipeline(source.head, (*source.stages, stage))
    make: Callable[[Source], Any] = stage
    longer = make(source)
    if not isinstance(longer, Source):
        raise TypeError(
            f"entry {position} of the pipeline made {_described(longer)} of the source "
            "before it; a stage makes a source"
        )
    return longer


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} (did you forget to call it?)"
    return f"{_brief.repr(value)} of type {type(value).__name__}"
