"""Layouts: where each array lies in the memory of a batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

ArraySpec: TypeAlias = tuple[tuple[int, ...], Any, Any]
"""``(shape of an item, NumPy dtype, JAX dtype)``."""

ArrayLayout: TypeAlias = tuple[
    tuple[int, ...], "np.dtype[Any]", "np.dtype[Any]", int, int
]
"""``(shape with the batch first, NumPy dtype, JAX dtype, offset, count)``."""

# JAX aliases memory whose address is a multiple of this, and copies any other.
ALIGNMENT = 64


def layouts_of(
    batch_size: int, arrays: Mapping[str, ArraySpec], argument: str
) -> tuple[dict[str, ArrayLayout], int]:
    """The layout of each array and the size of a batch in bytes."""
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"{argument} must map names to (shape, NumPy dtype, JAX dtype); found "
            f"{type(arrays).__name__}"
        )
    if not arrays:
        raise ValueError(f"{argument} must name at least one array")
    layouts: dict[str, ArrayLayout] = {}
    size = 0
    for name, spec in arrays.items():
        shape, stored, placed = _checked(name, spec, argument)
        full = (batch_size, *shape)
        count = math.prod(full)
        size += -size % ALIGNMENT
        layouts[name] = (full, stored, placed, size, count)
        size += count * stored.itemsize
    return layouts, size


def _checked(
    name: Any, spec: Any, argument: str
) -> tuple[tuple[int, ...], np.dtype[Any], np.dtype[Any]]:
    where = f"{argument}[{name!r}]"
    if not isinstance(name, str):
        raise TypeError(f"{argument} must have strings as names; found {name!r}")
    if not isinstance(spec, (tuple, list)) or len(spec) != 3:
        raise ValueError(
            f"{where} must be (shape, NumPy dtype, JAX dtype); found {spec!r}"
        )
    try:
        shape = tuple(operator.index(length) for length in spec[0])
    except TypeError:
        raise ValueError(
            f"{where} must have a tuple of integers as its shape; found {spec[0]!r}"
        ) from None
    if any(length < 1 for length in shape):
        raise ValueError(
            f"{where} must have a shape whose lengths are at least 1; found {shape}"
        )
    return shape, _dtype(where, "NumPy", spec[1]), _dtype(where, "JAX", spec[2])


def _dtype(where: str, whose: str, given: Any) -> np.dtype[Any]:
    if isinstance(given, str):
        import ml_dtypes  # noqa: F401 - adds names such as "bfloat16" to NumPy
    try:
        dtype = np.dtype(given)
    except TypeError:
        raise ValueError(f"{where}: {given!r} is not a {whose} dtype") from None
    if dtype.hasobject:
        raise ValueError(
            f"{where}: the {whose} dtype object is not supported. Return such values "
            "as additional data."
        )
    return dtype
