"""Layouts: where each array lies in the memory of a batch."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from millstream._run.cache_files import ALIGNMENT

ArraySpec: TypeAlias = tuple[tuple[int, ...], Any, Any]
"""``(shape of an item, NumPy dtype, JAX dtype)``."""

ArrayLayout: TypeAlias = tuple[
    tuple[int, ...], "np.dtype[Any]", "np.dtype[Any]", int, int
]
"""``(shape with the batch first, NumPy dtype, JAX dtype, offset, count)``."""

Layouts: TypeAlias = MappingProxyType[str, ArrayLayout]


def layouts_of(
    batch_size: int, arrays: Mapping[str, ArraySpec] | None, argument: str
) -> Layouts | None:
    """The layout of each array. Every offset is aligned so that JAX can alias it."""
    if arrays is None:
        return None
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"{argument} must map names to (shape, NumPy dtype, JAX dtype); found "
            f"{type(arrays).__name__}"
        )
    if not arrays:
        raise ValueError(f"{argument} must name at least one array")
    layouts: dict[str, ArrayLayout] = {}
    for name, spec in arrays.items():
        shape, stored, placed = _checked(name, spec, argument)
        full = (batch_size, *shape)
        size = size_of(layouts)
        offset = size + -size % ALIGNMENT
        layouts[name] = (full, stored, placed, offset, math.prod(full))
    return MappingProxyType(layouts)


def size_of(layouts: Mapping[str, ArrayLayout]) -> int:
    """The size of a batch in bytes."""
    ends = (
        offset + count * stored.itemsize
        for _, stored, _, offset, count in layouts.values()
    )
    return max(ends, default=0)


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
        shape = (0,)
    if any(length < 1 for length in shape):
        raise ValueError(
            f"invalid shape for array {name!r}: {where} must have a tuple of integers "
            f"of at least 1 as its shape; found {spec[0]!r}"
        )
    return shape, _dtype(where, "NumPy", spec[1]), _dtype(where, "JAX", spec[2])


def _dtype(where: str, whose: str, given: Any) -> np.dtype[Any]:
    if isinstance(given, str):
        import ml_dtypes  # noqa: F401 - adds names such as "bfloat16" to NumPy
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError:
        raise ValueError(f"{where}: {given!r} is not a {whose} dtype") from None
    if dtype.hasobject:
        raise ValueError(
            f"{where}: the {whose} dtype object is not supported. Return such values "
            "as additional data."
        )
    return dtype
