"""Converts fields to other dtypes, and fails if a value does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _engine
from millstream._cli.reading import Reader, fields_of
from millstream._delivery.jit import dtype_named
from millstream._formats.schema import Field, UsageError


def cast_source(
    source: _engine.Source, casts: dict[str, str], progress: Callable[[int], None]
) -> _engine.Source:
    """Returns ``source`` with the fields in ``casts`` converted to other dtypes.

    It reads all values first. Floats may be rounded. Raises ``UsageError`` for an
    unknown field, and ``ValueError`` with the field, the sample and the value if the
    new dtype cannot hold a value.
    """
    fields = fields_of(source)
    known = [field.name for field in fields]
    for name in casts:
        if name not in known:
            raise UsageError(f"--cast: unknown field {name!r}: expected one of {known}")
    reader = Reader(source)
    for step in range(reader.steps):
        first = step * reader.rows
        for field, column in zip(fields, reader.batch(step), strict=True):
            if field.name in casts:
                _check(field, column, dtype_named(casts[field.name]), first)
        progress(min(first + reader.rows, reader.samples))
    specs = [
        (field.name, casts.get(field.name, field.dtype), list(field.shape), False)
        for field in fields
    ]
    return _engine.recast(source, specs)


def _check(
    field: Field, column: NDArray[Any], dtype: np.dtype[Any], first: int
) -> None:
    if column.dtype == dtype:
        return
    given = column.real if dtype.kind != "c" else column
    with np.errstate(all="ignore"):
        held = np.asarray(_held(given, given.astype(dtype)))
    if given is not column and _is_complex(column):
        held &= column.imag == 0
    if not held.all():
        place = np.argwhere(~held)[0]
        raise ValueError(
            f"'{field.name}', sample {first + int(place[0])}: "
            f"{dtype.name} cannot hold {column[tuple(place)]}. Use another dtype."
        )


def _held(column: NDArray[Any], cast: NDArray[Any]) -> Any:
    """Returns a mask of the values that are equal. Floats may differ by rounding."""
    if _is_whole(column) and _is_whole(cast):
        return (cast == column) & ((cast < 0) == (column < 0))
    if _is_whole(cast):  # and the column has floats
        least, end = _limits(cast.dtype)
        fits = (column >= least) & (column < end)
        return fits & (column == np.trunc(column))
    if _is_whole(column):
        _, end = _limits(column.dtype)
        return (cast.real < end) & (cast.real.astype(column.dtype) == column)
    return np.isfinite(cast) | ~np.isfinite(column)


def _is_whole(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iub"


def _is_complex(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "c"


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Returns the minimum of a dtype and its maximum plus one, both exact as floats."""
    if dtype.kind == "b":
        return 0.0, 2.0
    info = np.iinfo(dtype)
    return float(info.min), float(int(info.max) + 1)
