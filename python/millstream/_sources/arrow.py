"""Columns of Arrow tables: chunks in memory, types and nulls."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from millstream._core.errors import DataError
from millstream._sources.chunks import Chunk, ChunkedColumn, chunk_of

_NUMBERS = {
    **{name: name for name in ("int8", "int16", "int32", "int64", "bool")},
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64")},
    **{"halffloat": "float16", "float": "float32", "double": "float64"},
}
"""NumPy's name of each numeric type of Arrow."""


class FixedType(NamedTuple):
    """The type of a column whose rows all have the same shape."""

    dtype: str
    shape: tuple[int, ...]


def fixed_type(kind: Any) -> FixedType | None:
    """Returns the dtype and shape of an Arrow type, or None if it does not fix them."""
    dtype = _NUMBERS.get(str(kind))
    if dtype is not None:
        return FixedType(dtype, ())
    if hasattr(kind, "storage_type"):  # an extension type
        shape = tuple(getattr(kind, "shape", ()))
        if not type(kind).__module__.startswith("datasets.") or not all(shape):
            return None
        value = kind.storage_type  # Array2D to Array5D store lists of lists
        for _ in shape:
            value = value.value_type
        dtype = _NUMBERS.get(str(value))
        return None if dtype is None else FixedType(dtype, shape)
    if not getattr(kind, "list_size", 0):
        return None
    inner = fixed_type(kind.value_type)
    if inner is None:
        return None
    return FixedType(inner.dtype, (kind.list_size, *inner.shape))


class Irregular(Exception):
    """Lists of a column have other lengths than the shape of its type."""


def arrow_column(name: str, column: Any, fixed: FixedType) -> ChunkedColumn:
    """Returns the memory of a ``pyarrow.ChunkedArray``. Copies only booleans.

    Raises ``Irregular`` if a row of a list type has another length.
    """
    dtype, shape = fixed
    try:
        arrays = [_values(chunk, shape) for chunk in column.chunks if len(chunk)]
    except Irregular:
        raise Irregular(
            f"some lists of '{name}' do not have the shape {shape}"
        ) from None
    per_row = int(np.prod(shape, dtype=np.int64))
    if dtype == "bool":  # one bit each
        bits = [np.asarray(values.cast("uint8").fill_null(0)) for values in arrays]
        flags = np.concatenate([*bits, np.empty(0, np.uint8)])
        return ChunkedColumn(name, dtype, shape, [chunk_of(flags.reshape(-1, *shape))])
    size = np.dtype(dtype).itemsize
    chunks = []
    for values in arrays:
        buffer = values.buffers()[1]
        address = buffer.address + values.offset * size
        chunks.append(Chunk(address, len(values) // per_row, buffer))
    return ChunkedColumn(name, dtype, shape, chunks)


def _values(array: Any, shape: tuple[int, ...]) -> Any:
    """Returns the numbers of an Arrow array as one flat Arrow array."""
    array = getattr(array, "storage", array)
    for length in shape:
        if hasattr(array.type, "list_size"):
            array = array.values.slice(array.offset * length, len(array) * length)
            continue
        offsets = np.asarray(array.offsets)
        if np.any(np.diff(offsets) != length):
            raise Irregular
        array = array.values.slice(int(offsets[0]), len(array) * length)
    return array


def first_null(column: Any, selected: np.ndarray | None) -> int | None:
    """Returns the first row of a ``pyarrow.ChunkedArray`` with a null, or None.

    ``selected`` lists the rows to look at. The result is then a position in this list.
    """
    if not column.null_count and str(column.type) in _NUMBERS:
        return None
    begin, rows = 0, []
    for chunk in column.chunks:
        found = _null_rows(getattr(chunk, "storage", chunk))
        if found is not None:
            rows.append(begin + found)
        begin += len(chunk)
    if not rows:
        return None
    nulls = np.concatenate(rows)
    if selected is None:
        return int(nulls[0])
    is_null = np.zeros(begin, np.bool_)
    is_null[nulls] = True
    positions = np.flatnonzero(is_null[selected])
    return int(positions[0]) if len(positions) else None


def _null_rows(array: Any) -> np.ndarray | None:
    """Returns the sorted rows of an Arrow array that are null or contain a null."""
    found = []
    if array.null_count:
        found.append(np.flatnonzero(np.asarray(array.is_null())))
    if hasattr(array, "values"):
        length = getattr(array.type, "list_size", None)
        if length is None:
            ends = np.asarray(array.offsets)
        else:
            ends = (array.offset + np.arange(len(array) + 1)) * length
        inner = _null_rows(array.values.slice(int(ends[0]), int(ends[-1] - ends[0])))
        if inner is not None:
            rows = np.searchsorted(ends - ends[0], inner, "right") - 1
            found.append(rows[np.asarray(array.is_valid())[rows]])
    return np.unique(np.concatenate(found)) if found else None


def list_lengths(column: Any) -> np.ndarray:
    """Returns the number of elements in each list of a ``pyarrow.ChunkedArray``."""
    lists = [getattr(chunk, "storage", chunk) for chunk in column.chunks]
    return np.concatenate([np.diff(np.asarray(array.offsets)) for array in lists])


def null_error(name: str, row: int, remedy: str) -> DataError:
    """Returns the error for a null in row ``row`` of the column ``name``."""
    return DataError(
        f"item {row} of column '{name}' is null or contains a null, and arrays have no "
        f"nulls. {remedy}",
        kind="data",
        sample=row,
        field=name,
        expected="a number",
        found="null",
    )
