"""Assembles and checks pipelines: a source and the stages after it."""

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
    """Returns a source for a list of a source and stages, or for a source.

    Any function that takes a source and returns a source may be a stage.
    """
    if isinstance(pipeline, Source):
        return pipeline
    if isinstance(pipeline, str | bytes | Mapping) or not hasattr(pipeline, "__iter__"):
        raise TypeError(
            "a pipeline must be a source, or a list of a source and stages, "
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
            "a pipeline must begin with a source, such as ArraySampleSource, or "
            f"DatasetSource(...) of a sequence; entry 0 is {_described(source)}"
        )
    for position, stage in enumerate(entries[1:], start=1):
        source = _joined(source, stage, position)
    return source


def _joined(source: Source, stage: Any, position: int) -> Source:
    if isinstance(stage, type | Source) or not callable(stage):
        raise TypeError(
            f"entry {position} of the pipeline is not a stage: {_described(stage)}"
        )
    if isinstance(stage, Stage):  # the loader checks the whole pipeline
        return Pipeline(source.head, (*source.stages, stage))
    extend: Callable[[Source], Any] = stage
    longer = extend(source)
    if not isinstance(longer, Source):
        raise TypeError(
            f"entry {position} of the pipeline returned {_described(longer)}; "
            "expected a source"
        )
    return longer


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} (did you forget to call it?)"
    return f"{_brief.repr(value)} of type {type(value).__name__}"


def check(head: SampleSource, stages: tuple[Stage, ...]) -> None:
    """Raises those errors of building the pipeline that are cheap to find.

    Traces nothing and starts no workers.
    """
    builder = Builder(head, check_only=True)
    builder.place(stages)
    n = head.num_samples
    # Check with a cheap order: drawing with replacement needs no table, while the
    # source's own order may need one.
    builder.plan(_engine.replacement(n, head.order.length(n)))
