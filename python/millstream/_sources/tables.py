"""Sources over tables of pandas, Polars and Arrow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from millstream._sources.arrays import ArraySampleSource
from millstream._sources.arrow import (
    arrow_column,
    first_null,
    fixed_type,
    null_error,
)
from millstream._sources.chunks import ChunkedColumn, TableSource, chunk_of, described
from millstream._sources.source import SampleSource

_MAX_NAMED = 8

_POLARS_NUMBERS = {
    *("Boolean", "Int8", "Int16", "Int32", "Int64", "Float16", "Float32", "Float64"),
    *("UInt8", "UInt16", "UInt32", "UInt64"),
}


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
        columns = _pandas_columns(x)
        source = ArraySampleSource(columns, ordering)
        return source.with_origin(described("pandas DataFrame", len(columns)))
    if library == "polars" and kind == "DataFrame":
        return PolarsSource(x, ordering)
    if library == "pyarrow" and kind == "Table":
        return ArrowSource(x, ordering)
    raise TypeError(
        f"expected a DataFrame of pandas or Polars, or a pyarrow.Table, found {kind}"
    )


@dataclass(frozen=True, eq=False)
class PolarsSource(TableSource):
    """The columns of a ``polars.DataFrame``, chunk by chunk."""

    kind: ClassVar[str] = "Polars DataFrame"
    table: Any
    ordering: Any = "shuffle"

    def _columns(self) -> tuple[list[ChunkedColumn], np.ndarray | None]:
        series = self.table.get_columns()
        _check_shape("Polars", self.table.shape)
        _check_numeric(
            "Polars",
            [(s.name, s.dtype, _is_polars_number(s.dtype)) for s in series],
            "frame.select({})",
            "polars.col({}).cast(polars.Float32), or to_physical() of a "
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
    return str(dtype) in _POLARS_NUMBERS


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

    kind: ClassVar[str] = "Arrow Table"
    table: Any
    ordering: Any = "shuffle"

    def _columns(self) -> tuple[list[ChunkedColumn], np.ndarray | None]:
        fields = list(self.table.schema)
        _check_shape("Arrow", self.table.shape)
        _check_names("Arrow", [field.name for field in fields])
        _check_numeric(
            "Arrow",
            [(f.name, f.type, fixed_type(f.type) is not None) for f in fields],
            "table.select({})",
            "table[{}].cast('float32')",
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
        [
            (name, s.dtype, s.dtype.kind in "biuf")
            for name, s in zip(names, series, strict=True)
        ],
        "frame[{}]",
        "frame[{}].astype('float32'), .cat.codes of a categorical, or "
        ".astype('int64') of a date",
    )
    return {name: _pandas_array(name, s) for name, s in zip(names, series, strict=True)}


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
    library: str,
    columns: list[tuple[str, Any, bool]],
    select: str,
    convert: str,
) -> None:
    """Raises ``TypeError`` if there are columns that are not numbers.

    ``columns`` has the name and the dtype of each column, and whether it is a number.
    """
    others = [(name, dtype) for name, dtype, is_number in columns if not is_number]
    if not others:
        return
    numbers = [name for name, _, is_number in columns if is_number]
    chosen = repr(numbers) if 0 < len(numbers) <= _MAX_NAMED else "[...]"
    listed = ", ".join(f"'{name}' ({dtype})" for name, dtype in others[:_MAX_NAMED])
    more = ", ..." if len(others) > _MAX_NAMED else ""
    raise TypeError(
        f"the {library} frame has columns that are not numbers: {listed}{more}. Choose "
        f"columns, as_source({select.format(chosen)}), or convert them: "
        f"{convert.format(repr(others[0][0]))}."
    )
