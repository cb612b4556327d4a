"""Sources of tables of pandas and Polars."""

from __future__ import annotations

from typing import Any

from millstream._sources.arrays import ArraySampleSource
from millstream._sources.source import SampleSource


def table_source(x: Any, *, ordering: Any) -> SampleSource:
    """Returns a source of the rows of ``x``."""
    return ArraySampleSource({name: x[name].to_numpy() for name in x}, ordering)
