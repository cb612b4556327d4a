"""Assembles and checks pipelines: a source and the stages after it."""

from __future__ import annotations

import inspect
import numbers
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream import _engine
from millstream._run.builder import Builder
from millstream._run.stream import built_pipeline, is_streamed
from millstream._sources.advice import advice_for
from millstream._sources.as_source import source_of
from millstream._sources.source import Source
from millstream._sources.streams import is_stream, missing_of_stream
from millstream._stages.stage import Stage

_brief = reprlib.Repr()

_brief.maxother = 200

_MAPS = (
    "To change samples or batches, wrap the function: MapTransform(fn) for JAX code, "
    "where fn takes (value, mask), or PythonMapTransform(fn) for NumPy code, where fn "
    "takes a sample."
)


class Pipeline(Source):
    """A source and the stages after it."""

    def __init__(self, head: Any, stages: tuple[Stage, ...]) -> None:
        self._head = head
        self._stages = stages

    @property
    def head(self) -> Any:
        return self._head

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self._stages

    def __repr__(self) -> str:
        return f"Pipeline({[self._head, *self._stages]})"


def assembled(pipeline: Sequence[Any] | Source | None) -> Source:
    """Returns a source for a list of a source and stages, or for a source.

    Any function that takes a source and returns a source may be a stage.
    """
    if isinstance(pipeline, Source):
        return pipeline
    if is_stream(pipeline):
        return Pipeline(pipeline, ())
    if not isinstance(pipeline, list | tuple):
        raise TypeError(
            "a pipeline must be a source, or a list of a source and stages, not "
            f"{type(pipeline).__name__}. {advice_for(pipeline)}."
        )
    entries = list(pipeline)
    if not entries:
        raise ValueError(
            "a pipeline needs at least a source, but this list is empty. "
            f"{advice_for(None)}."
        )
    source = entries[0]
    if is_stream(source):
        source = Pipeline(source, ())
    elif not isinstance(source, Source):
        if not isinstance(source, type) and (missing := missing_of_stream(source)):
            raise TypeError(
                f"entry 0, {_described(source)}, has a method next, but it is not a "
                f"stream: it lacks {', '.join(missing)}"
            )
        wrong = "a pipeline must begin with a source or a data set, but entry 0 is "
        if isinstance(source, Stage):
            name = type(source).__name__
            raise TypeError(f"{wrong}{name}. Put it after the data set.")
        if len(entries) > 1 and not any(map(callable, entries)):  # a list of samples
            raise TypeError(f"{wrong}{_described(source)}. {advice_for(entries)}.")
        source = source_of(source, "DataLoader: entry 0", "shuffle", {})
    for position, stage in enumerate(entries[1:], start=1):
        source = _joined(source, stage, position)
    return source


def _joined(source: Source, stage: Any, position: int) -> Source:
    if _is_added(stage):
        stage = stage.__radd__
    if isinstance(stage, type | Source) or not callable(stage):
        raise TypeError(
            f"entry {position} of the pipeline must be a stage, such as "
            f"BatchTransform(128), but it is {_described(stage)}"
        )
    if isinstance(stage, Stage):  # the loader checks the whole pipeline
        return Pipeline(source.head, (*source.stages, stage))
    name = getattr(stage, "__name__", type(stage).__name__)
    what = f"entry {position} of the pipeline, the function {name},"
    if not _takes_one(stage):
        raise TypeError(f"{what} is not a stage. {_MAPS}")
    extend: Callable[[Source], Any] = stage
    try:
        longer = extend(source)
    except (AttributeError, LookupError, TypeError) as error:
        error.add_note(
            f"millstream: {what} was called with a source and must return one. {_MAPS}"
        )
        raise
    if not isinstance(longer, Source):
        raise TypeError(
            f"{what} returned {_described(longer)}; expected a source. {_MAPS}"
        )
    return longer


def _is_added(stage: Any) -> bool:
    """Whether ``source + stage`` is the only way to apply a stage of the user.

    Numbers and arrays can be added too, but they are not stages.
    """
    return (
        hasattr(type(stage), "__radd__")
        and not callable(stage)
        and not isinstance(stage, numbers.Number | Source)
        and not hasattr(stage, "dtype")
    )


def _takes_one(fn: Callable[..., Any]) -> bool:
    """Whether ``fn`` can be called with one positional argument."""
    try:
        inspect.signature(fn).bind(None)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} (did you forget to call it?)"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {_brief.repr(list(value))}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"an array {value.dtype}{list(value.shape)}"
    return f"{_brief.repr(value)} of type {type(value).__name__}"


def check(head: Any, stages: tuple[Stage, ...]) -> None:
    """Raises those errors of building the pipeline that are cheap to find.

    Starts no workers, and traces only pipelines over streams.
    """
    if is_streamed(head, stages):
        built_pipeline(head, stages)
        return
    builder = Builder(head, check_only=True)
    builder.place(stages)
    n = head.num_samples
    # Check with a cheap order: drawing with replacement needs no table, while the
    # source's own order may need one.
    builder.plan(_engine.replacement(n, head.order.length(n)))
