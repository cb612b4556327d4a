"""Sources over tables of pandas, Polars and Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream._sources.arrays import ArraySampleSource
from millstream._sources.arrow import (
    arrow_column,
    first_null,
    fixed_type,
    null_error,
)
from millstream._sources.chunks import ChunkedColumn, TableSource, chunk_of
from millstream._sources.source import SampleSource

_NUMERIC = "biuf"


def table_source(x: Any, *, ordering: Any = "shuffle") -> SampleSource:
    """Returns a source over a frame of pandas or Polars, or a ``pyarrow.Table``.

    A sample is a dict with one entry per column. All columns must be numbers.
    """
    library, kind = type(x).__module__.partition(".")[0], type(x).__name__
    if library == "polars" and kind == "LazyFrame":
        raise TypeError(
            "a LazyFrame has no rows yet. Write as_source(frame.collect())."
        )
    if "GroupBy" in kind:
        raise TypeError(
            f"a {kind} has groups instead of rows. Aggregate it first, such as "
            "as_source(groups.mean()), or pass the frame itself."
        )
    if kind == "Series":
        raise TypeError(
            f"a Series of {library} is one column. Write as_source(series.to_frame())."
        )
    if library == "pandas" and kind == "DataFrame":
        source: SampleSource = ArraySampleSource(_pandas_columns(x), ordering)
    elif library == "polars" and kind == "DataFrame":
        source = PolarsSource(x, ordering)
    elif library == "pyarrow" and kind == "Table":
        source = ArrowSource(x, ordering)
    else:
        raise TypeError(f"expected a frame of pandas or Polars, found {kind}")
    name = {"pandas": "pandas", "polars": "Polars", "pyarrow": "Arrow"}[library]
    return source.with_origin(f"{name} {kind} of {x.shape[1]} columns")


@dataclass(frozen=True, eq=False)
class PolarsSource(TableSource):
    """The columns of a ``polars.DataFrame``, chunk by chunk."""

    table: Any
    ordering: Any = "shuffle"

    def _columns(self) -> tuple[list[ChunkedColumn], np.ndarray | None]:
        series = self.table.get_columns()
        _check_shape("Polars", self.table.shape)
        _check_numeric(
            "Polars",
            ((s.name, s.dtype) for s in series if not _is_polars_number(s.dtype)),
            "frame.select(polars.selectors.numeric())",
            "polars.col({name!r}).cast(polars.Float32), or to_physical() of a "
            "Categorical or a date",
        )
        columns = []
        for s in series:
            _check_polars_nulls(s)
            # A pl.Array of shape (2, 3) and a number both become an array of rows.
            chunks = [chunk_of(c.to_numpy()) for c in s.get_chunks() if len(c)]
            array = chunks[0].owner
            columns.append(
                ChunkedColumn(s.name, array.dtype.name, array.shape[1:], chunks)
            )
        return columns, None


def _is_polars_number(dtype: Any) -> bool:
    while hasattr(dtype, "inner") and hasattr(dtype, "shape"):  # pl.Array
        dtype = dtype.inner
    return bool(dtype.is_integer() or dtype.is_float()) or str(dtype) == "Boolean"


def _check_polars_nulls(series: Any) -> None:
    flat, width = series, 1
    found = series.is_null().arg_true() if series.null_count() else []
    while not len(found) and hasattr(flat.dtype, "inner"):
        width *= flat.dtype.size
        flat = flat.explode()
        found = flat.is_null().arg_true() if flat.null_count() else []
    if len(found):
        raise null_error(
            series.name,
            int(found[0]) // width,
            f"Leave such rows out, frame.drop_nulls({series.name!r}), or replace the "
            "nulls with fill_null(...).",
        )


@dataclass(frozen=True, eq=False)
class ArrowSource(TableSource):
    """The columns of a ``pyarrow.Table``, chunk by chunk."""

    table: Any
    ordering: Any = "shuffle"

    def _columns(self) -> tuple[list[ChunkedColumn], np.ndarray | None]:
        fields = list(self.table.schema)
        _check_shape("Arrow", self.table.shape)
        _check_names("Arrow", [field.name for field in fields])
        _check_numeric(
            "Arrow",
            ((f.name, f.type) for f in fields if fixed_type(f.type) is None),
            "table.select([...])",
            "table[{name!r}].cast('float32')",
        )
        columns = []
        for field in fields:
            fixed, column = fixed_type(field.type), self.table[field.name]
            assert fixed is not None
            row = first_null(column, None)
            if row is not None:
                remedy = "Leave such rows out with table.drop_null(), or fill them."
                raise null_error(field.name, row, remedy)
            columns.append(arrow_column(field.name, column, fixed))
        return columns, None


def _pandas_columns(frame: Any) -> dict[str, np.ndarray]:
    """Returns the columns of a pandas frame as arrays, views where possible."""
    _check_shape("pandas", frame.shape)
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise ValueError(
            "the pandas frame has a MultiIndex of column names. Give each column one "
            "name: frame.set_axis(['_'.join(map(str, n)) for n in frame.columns], "
            "axis=1)."
        )
    names = [str(name) for name in frame.columns]
    _check_names("pandas", names)
    series = [frame.iloc[:, i] for i in range(len(names))]
    _check_numeric(
        "pandas",
        (
            (name, s.dtype)
            for name, s in zip(names, series, strict=True)
            if not _is_pandas_number(s.dtype)
        ),
        "frame.select_dtypes(['number', 'bool'])",
        "frame[{name!r}].astype('float32'), .cat.codes of a categorical, or "
        ".astype('int64') of a date",
    )
    return {name: _pandas_array(name, s) for name, s in zip(names, series, strict=True)}


def _is_pandas_number(dtype: Any) -> bool:
    if getattr(dtype, "subtype", None) is not None and not hasattr(dtype, "fill_value"):
        return False  # an interval
    numeric = getattr(dtype, "_is_numeric", False) or getattr(
        dtype, "_is_boolean", False
    )
    return dtype.kind in _NUMERIC and (isinstance(dtype, np.dtype) or bool(numeric))


def _pandas_array(name: str, series: Any) -> np.ndarray:
    dtype = series.dtype
    if isinstance(dtype, np.dtype):
        array: np.ndarray = series.to_numpy()
        return array
    # An extension dtype, such as Int64 or double[pyarrow], whose missing value is NA.
    is_missing = np.asarray(series.isna())
    nullable = hasattr(dtype, "numpy_dtype")
    if nullable and is_missing.any():
        raise null_error(
            name,
            int(np.argmax(is_missing)),
            f"Leave such rows out, frame.dropna(subset=[{name!r}]), or replace the "
            "missing values with fillna(...).",
        )
    plain = dtype.numpy_dtype if nullable else dtype.subtype  # of a sparse column
    return np.asarray(series.to_numpy(dtype=plain))


def _check_shape(library: str, shape: tuple[int, ...]) -> None:
    for extent, what in zip(shape, ("rows", "columns"), strict=True):
        if extent == 0:
            raise ValueError(f"the {library} frame has no {what}")


def _check_names(library: str, names: list[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(
                f"the {library} frame has {count} columns named '{name}'. Rename them, "
                "because a sample is a dict with one entry per column."
            )


def _check_numeric(
    library: str, others: Iterable[tuple[str, Any]], select: str, convert: str
) -> None:
    """Raises ``TypeError`` if there are columns that are not numbers."""
    listed = [f"'{name}' ({dtype})" for name, dtype in others]
    if not listed:
        return
    name = listed[0].split("'")[1]
    raise TypeError(
        f"the {library} frame has columns that are not numbers: {', '.join(listed)}. "
        f"Choose columns, such as as_source({select}), or convert them: "
        f"{convert.format(name=name)}."
    )
