"""Recognises data sets of other libraries."""

from __future__ import annotations

from typing import Any

from millstream._sources.arrays import ArraySampleSource
from millstream._sources.functions import DatasetSource
from millstream._sources.source import SampleSource


def as_source(
    x: Any,
    *,
    ordering: Any = "shuffle",
    workers: int = 1,
    worker_kind: str = "thread",
) -> SampleSource:
    """Returns a source of samples for ``x``."""
    if isinstance(x, SampleSource):
        return x
    if isinstance(x, dict | tuple):
        return ArraySampleSource(x, ordering)
    return DatasetSource(x, ordering=ordering, workers=workers, worker_kind=worker_kind)
