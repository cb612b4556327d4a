"""Checks data sets of Grain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from millstream._sources.recognise import MAP_DATASET, defined_by, is_a

_RECORDS = (
    "grain._src.python.data_sources.ArrayRecordDataSource",
    "array_record.python.array_record_data_source.ArrayRecordDataSource",
)
_SAME_ELEMENTS = {
    "ShuffleMapDataset",
    "WindowShuffleMapDataset",
    "SliceMapDataset",
    "RepeatMapDataset",
    "_WithSeedMapDataset",
}
"""The data sets whose elements are those of their parent."""


def check_grain(x: Any, caller: str) -> None:
    """Raises an error for data sets of Grain whose elements are not samples."""
    if defined_by(x, "__getitem__") in _RECORDS:
        raise TypeError(
            f"{caller}: the records of an ArrayRecordDataSource are bytes. Parse them: "
            "grain.MapDataset.source(source).map(parse)."
        )
    if not is_a(x, MAP_DATASET):
        return
    last = x
    while type(last).__name__ in _SAME_ELEMENTS:
        last = last.parents[0]
    if type(last).__name__ == "BatchMapDataset":
        raise ValueError(
            f"{caller}: the elements of this MapDataset are batches. Remove "
            ".batch(...) and let the loader batch samples, with BatchTransform or "
            "batch_size."
        )
    for node in _nodes(x):
        if type(node).__name__ == "FilterMapDataset":
            raise ValueError(
                f"{caller}: .filter(...) of a MapDataset leaves None in the place of "
                "removed samples. Remove it and use FilterTransform, or use "
                "IterableSource(dataset.to_iter_dataset()) in a Python loop."
            )
    if len(x) == sys.maxsize:
        raise ValueError(
            f"{caller}: .repeat() makes this MapDataset infinite. Remove it and repeat "
            "epochs with the loader: loader.run(epochs=None)."
        )


def _nodes(x: Any) -> Iterator[Any]:
    """Yields a data set and all data sets that it reads from."""
    yield x
    for parent in getattr(x, "parents", ()):
        yield from _nodes(parent)
