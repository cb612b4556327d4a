"""A source and the stages after it, assembled and checked."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream import _engine
from millstream._run.builder import Builder
from millstream._sources.source import SampleSource, Source
from millstream._stages.stage import Stage

_brief = reprlib.Repr()

_brief.maxother = 200


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


def check(head: SampleSource, stages: tuple[Stage, ...]) -> None:
    """Raises what building the pipeline would, as far as that is cheap to know.

    Nothing is traced and no workers are started.
    """
    builder = Builder(head, check_only=True)
    builder.place(stages)
    n = head.num_samples
    builder.plan(_engine.replacement(n, head.order.length(n)))  # an order with no table
