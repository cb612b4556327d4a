"""Recognises data sets of other libraries."""

from __future__ import annotations

from typing import Any

from millstream._core.public import public
from millstream._sources.arrays import ArraySampleSource
from millstream._sources.functions import DatasetSource
from millstream._sources.source import SampleSource


@public
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
    modules = {kind.__module__.partition(".")[0] for kind in type(x).__mro__}
    library = type(x).__module__.partition(".")[0]
    if "datasets" in modules:
        from millstream._sources.hugging_face import hugging_face_source

        return hugging_face_source(
            x, ordering=ordering, workers=workers, worker_kind=worker_kind
        )
    if library in ("pandas", "polars", "pyarrow"):
        from millstream._sources.tables import table_source

        return table_source(x, ordering=ordering)
    if isinstance(x, dict | tuple):
        return ArraySampleSource(x, ordering)
    return DatasetSource(x, ordering=ordering, workers=workers, worker_kind=worker_kind)
