"""Placement: makes JAX arrays from the NumPy arrays of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from millstream.hydrax._layout import ArrayLayout

if TYPE_CHECKING:
    import jax

    from millstream.hydrax._groups import DataGroup

PlacementFunc: TypeAlias = Callable[
    [
        MappingProxyType[str, "np.ndarray[Any, Any]"],
        MappingProxyType[str, ArrayLayout],
        MappingProxyType[str, Sequence[Any]],
        "DataGroup[Any]",
    ],
    dict[str, "jax.Array"],
]


def placed(
    function: PlacementFunc | None,
    arrays: dict[str, np.ndarray[Any, Any]],
    layouts: Mapping[str, ArrayLayout],
    additional: dict[str, list[Any]],
    group: DataGroup[Any],
) -> dict[str, jax.Array]:
    """The JAX arrays that ``function`` returns, checked against the layouts.

    Without a function the JAX arrays alias the memory of ``arrays`` if possible.
    """
    if function is None:
        return _aliases(arrays, layouts)
    rows = len(next(iter(arrays.values())))
    result = function(
        MappingProxyType(arrays),
        MappingProxyType(dict(layouts)),
        MappingProxyType(additional),
        group,
    )
    check_arrays(result, layouts, rows, "placement_func returned")
    return dict(result)


def _aliases(
    arrays: dict[str, np.ndarray[Any, Any]], layouts: Mapping[str, ArrayLayout]
) -> dict[str, jax.Array]:
    """Uncommitted arrays on the default device. On the CPU, only a cast copies."""
    import jax
    import jax.numpy as jnp

    same: dict[str, Any] = {}
    cast: dict[str, jax.Array] = {}
    for name, array in arrays.items():
        dtype = canonical(layouts[name][2])
        if array.dtype == dtype:
            same[name] = array
        else:
            _check_range(name, array, dtype)
            cast[name] = jnp.asarray(array, dtype=dtype)
    # jnp.asarray would copy. One call for all arrays is cheaper than one for each.
    aliased = jax.device_put(same)
    return {name: aliased[name] if name in same else cast[name] for name in arrays}


def _check_range(name: str, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Raises ``OverflowError`` if narrowing 64-bit integers would change them."""
    if array.dtype.kind not in "iu" or dtype.kind not in "iu":
        return
    if array.dtype.itemsize < 8 or dtype.itemsize != 4:
        return
    limits = np.iinfo(dtype)
    low, high = array.min(), array.max()
    if low < limits.min or high > limits.max:
        raise OverflowError(
            f"the array {name!r} has values from {low} to {high}, which do not fit "
            f"{dtype}. Set jax_enable_x64, or declare a dtype that holds them."
        )


def canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that JAX uses for ``dtype``. Without x64 JAX has no 64-bit types."""
    if dtype.itemsize < 8:
        return dtype
    import jax

    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def check_arrays(
    arrays: Any, layouts: Mapping[str, ArrayLayout], rows: int, who: str
) -> None:
    """Raises unless ``arrays`` are JAX arrays that match the layouts and ``rows``."""
    import jax

    if not isinstance(arrays, Mapping):
        raise TypeError(f"{who} a {type(arrays).__name__}; expected a dict of arrays")
    if arrays.keys() != layouts.keys():
        raise ValueError(
            f"{who} the arrays {sorted(arrays)}; expected {sorted(layouts)}"
        )
    for name, (full, _, dtype, _, _) in layouts.items():
        array = arrays[name]
        shape = (rows, *full[1:])
        if not isinstance(array, jax.Array):
            raise TypeError(
                f"{who} {name!r} as a {type(array).__name__}; expected a JAX array"
            )
        if array.shape != shape:
            raise ValueError(
                f"{who} {name!r} with shape {array.shape}; expected {shape}"
            )
        if array.dtype != canonical(dtype):
            raise ValueError(
                f"{who} {name!r} as {array.dtype}; expected {canonical(dtype)}"
            )


def check_additional(additional: Any, rows: int) -> None:
    """Raises unless every key has a list with one value per row."""
    if not isinstance(additional, Mapping):
        raise TypeError(
            f"additional data must be a dict, not {type(additional).__name__}"
        )
    for key, values in additional.items():
        if not isinstance(values, list):
            raise TypeError(
                f"additional data {key!r} must be a list, not {type(values).__name__}"
            )
        if len(values) != rows:
            raise ValueError(
                f"additional data {key!r} has {len(values)} values for {rows} items"
            )
