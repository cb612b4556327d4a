"""Sources over data sets of Hugging Face's package ``datasets``."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from millstream._core.errors import DataError
from millstream._sources.arrow import (
    Irregular,
    arrow_column,
    first_null,
    fixed_type,
    list_lengths,
    null_error,
)
from millstream._sources.chunks import ChunkedColumn, TableSource
from millstream._sources.functions import DatasetSource, DiskSampleSource
from millstream._sources.source import SampleSource
from millstream._workers.hugging_face import (
    Arrays,
    Converter,
    Fields,
    HuggingFaceRows,
    image_arrays,
)

_TABLES = ("arrow", "pandas", "polars")


def hugging_face_source(
    x: Any, *, ordering: Any = "shuffle", **workers: Any
) -> SampleSource:
    """Returns a source over a ``datasets.Dataset``.

    If all columns are numbers of a fixed shape, the engine reads them from the memory
    or the files of the Arrow table. Otherwise workers read the rows, through the format
    or transform of the data set if it has one. ``workers`` are arguments of
    ``DatasetSource``, such as ``workers`` and ``timeout``.
    """
    _check_kind(x)
    if len(x) == 0:
        raise ValueError("the Hugging Face Dataset has no rows")
    options = {"ordering": ordering, **workers}
    if _overrides(x, "__getitems__"):
        return DatasetSource(x, **options).with_origin(_OVERRIDDEN)
    if _overrides(x, "__getitem__"):  # which may take only one index at a time
        one = functools.partial(operator.getitem, x)
        return DiskSampleSource(len(x), one, **options).with_origin(_OVERRIDDEN)
    kind = x.format["type"]
    if kind in _TABLES:
        raise ValueError(
            f"the format {kind!r} of the Hugging Face Dataset returns tables instead "
            "of rows. Pass dataset.with_format(None)."
        )
    converters: dict[str, Converter] = {}
    if kind is not None:
        what = "a transform" if kind == "custom" else f"the format {kind!r}"
        reason = (
            f"workers read the rows, because the data set has {what}; "
            "with_format(None) removes it"
        )
    else:
        table, selected = _table_of(x)
        reason = _reason(x, table, selected)
        if not reason:
            try:
                return HuggingFaceSource(x, ordering)
            except Irregular as error:
                reason = f"workers read the rows, because {error}"
        converters = {n: _converter(n, x.features[n]) for n in table.column_names}
    rows = DatasetSource(HuggingFaceRows(x, converters), **options)
    return rows.with_origin(f"Hugging Face Dataset: {reason}")


_OVERRIDDEN = (
    "Hugging Face Dataset: workers read the rows, because its class overrides "
    "__getitem__ or __getitems__"
)


def _overrides(dataset: Any, method: str) -> bool:
    module = getattr(type(dataset), method).__module__
    return not module.startswith("datasets.")


@dataclass(frozen=True, eq=False)
class HuggingFaceSource(TableSource):
    """The numeric columns of a ``datasets.Dataset`` without a format."""

    kind: ClassVar[str] = "Hugging Face Dataset read from Arrow"
    table: Any
    ordering: Any = "shuffle"

    def _columns(self) -> tuple[list[ChunkedColumn], np.ndarray | None]:
        table, selected = _table_of(self.table)
        columns = []
        for name in table.column_names:
            fixed = fixed_type(table.schema.field(name).type)
            assert fixed is not None  # `hugging_face_source` has checked the types
            columns.append(arrow_column(name, table[name], fixed))
        return columns, selected


def _check_kind(x: Any) -> None:
    """Raises an error unless ``x`` is a ``datasets.Dataset``."""
    kinds = {kind.__name__ for kind in type(x).__mro__}
    if kinds & {"DatasetDict", "IterableDatasetDict"}:
        first = next(iter(x), "train")
        raise TypeError(
            f"choose a split: {list(x)}. A {type(x).__name__} has several splits; "
            f"write as_source(dataset[{first!r}])."
        )
    if "IterableDataset" in kinds:
        raise TypeError(
            "a streaming data set (IterableDataset) has no random access. Use "
            "IterableSource(dataset) in a Python loop, or load the data set without "
            "streaming=True."
        )
    if "Dataset" not in kinds:
        raise TypeError(f"expected a datasets.Dataset, found {type(x).__name__}")


def _table_of(dataset: Any) -> tuple[Any, np.ndarray | None]:
    """Returns the Arrow table of a data set, and its rows if they are not contiguous.

    The table has the columns that the data set shows.
    """
    shown = dataset.format
    table = dataset.data.table
    if not shown["output_all_columns"]:
        table = table.select(shown["columns"])
    if dataset._indices is None:
        return table, None
    chunks = dataset._indices.column(0).chunks
    rows = np.concatenate([np.asarray(chunk) for chunk in chunks]).astype(np.int64)
    if rows[-1] - rows[0] == len(rows) - 1 and np.all(np.diff(rows) == 1):
        return table.slice(int(rows[0]), len(rows)), None
    return table, rows


def _reason(dataset: Any, table: Any, selected: np.ndarray | None) -> str:
    """Returns why workers have to read the rows, or "" if the engine can.

    Raises ``DataError`` for nulls in numbers and images, and for lists of different
    lengths.
    """
    reasons = []
    for name in table.column_names:
        column, feature = table[name], dataset.features[name]
        is_number = _dtype(feature) is not None
        if is_number or _is_image(feature):
            row = first_null(column, selected)
            if row is not None:
                raise null_error(name, row, _NULL_REMEDY.format(name=name))
        if not is_number:
            reasons.append(f"'{name}' is {_shown(feature)}")
        elif fixed_type(column.type) is None:
            reasons.append(_free_length(name, column, feature, selected))
    if not reasons:
        return ""
    return f"workers read the rows, because {' and '.join(reasons)}"


_NULL_REMEDY = (
    "Leave such rows out, dataset.filter(lambda row: row[{name!r}] is not None), or "
    "replace the nulls with dataset.map(...)."
)


def _free_length(
    name: str, column: Any, feature: Any, selected: np.ndarray | None
) -> str:
    """Returns the reason for a column of lists whose type does not fix the length."""
    text = f"'{name}' is {_shown(feature)} without a length"
    if hasattr(column.type, "list_size"):
        return f"{text} of the inner lists"
    lengths = list_lengths(column)
    lengths = lengths if selected is None else lengths[selected]
    other = np.flatnonzero(lengths != lengths[0])
    if len(other):
        row = int(other[0])
        raise DataError(
            f"item {row} of column '{name}' has {lengths[row]} elements, item 0 has "
            f"{lengths[0]}, and arrays need rows of one shape. Pad or crop the lists "
            "with dataset.map(...), or pass the column on as lists: DatasetSource("
            f"dataset.with_format('numpy'), host_fields=[{name!r}]).",
            kind="data",
            sample=row,
            field=name,
            expected=f"{lengths[0]} elements",
            found=f"{lengths[row]} elements",
        )
    inner = getattr(feature, "feature", None)
    if type(inner).__name__ not in ("Value", "ClassLabel"):
        return text
    return (
        f"{text} (dataset.cast_column({name!r}, List({inner!r}, length={lengths[0]})) "
        "gives it one)"
    )


def _shown(feature: Any) -> str:
    if type(feature).__name__ == "Value":
        return f"{feature.dtype}"
    if isinstance(feature, dict):
        return "a dict"
    return f"{type(feature).__name__}"


def _dtype(feature: Any) -> np.dtype | None:
    """Returns the dtype of a number or of lists of numbers, None for other features."""
    kind = type(feature).__name__
    if kind == "ClassLabel":
        return np.dtype(np.int64)
    if kind in ("List", "LargeList", "Sequence"):
        return _dtype(feature.feature)
    if kind == "Value" or kind.startswith("Array"):
        names = {"float": "float32", "double": "float64"}
        name = names.get(feature.dtype, feature.dtype)
        is_number = name == "null" or name.startswith(("int", "uint", "float", "bool"))
        return np.dtype(name.replace("null", "float32")) if is_number else None
    return None


def _is_image(feature: Any) -> bool:
    return type(feature).__name__ == "Image" and bool(feature.decode)


def _converter(name: str, feature: Any) -> Converter:
    """Returns the function that makes arrays of the values of a column."""
    if isinstance(feature, dict):
        return Fields({key: _converter(key, inner) for key, inner in feature.items()})
    dtype = _dtype(feature)
    if dtype is not None:
        # The dtype of the batch, so that workers copy the bytes.
        is_scalar = not hasattr(feature, "feature") and not hasattr(feature, "shape")
        return Arrays(name, jax.dtypes.canonicalize_dtype(dtype), is_scalar)
    return image_arrays if _is_image(feature) else list
