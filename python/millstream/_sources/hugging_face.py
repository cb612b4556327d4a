"""Sources of data sets of Hugging Face."""

from __future__ import annotations

from typing import Any

from millstream._sources.functions import DatasetSource
from millstream._sources.source import SampleSource


def hugging_face_source(x: Any, *, ordering: Any, **options: Any) -> SampleSource:
    """Returns a source of the rows of ``x``."""
    return DatasetSource(x, ordering=ordering, **options)
