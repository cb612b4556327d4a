"""Placement: makes JAX arrays from the NumPy arrays of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from millstream._core.arguments import overflow
from millstream._core.errors import ITEM
from millstream.hydrax._layout import Layouts

if TYPE_CHECKING:
    import jax

    from millstream.hydrax._groups import DataGroup

PlacementFunc: TypeAlias = Callable[
    [
        MappingProxyType[str, "np.ndarray[Any, Any]"],
        Layouts,
        MappingProxyType[str, Sequence[Any]],
        "DataGroup[Any]",
    ],
    dict[str, "jax.Array"],
]
"""``(arrays, layouts, additional, group) -> {name: jax.Array}``."""


def placed(
    function: PlacementFunc | None,
    arrays: dict[str, np.ndarray[Any, Any]],
    layouts: Layouts,
    additional: dict[str, list[Any]],
    group: DataGroup[Any],
) -> dict[str, jax.Array]:
    """The JAX arrays that ``function`` returns, checked against the layouts.

    Without a function they are uncommitted arrays on the default device. On the CPU
    they alias the memory of ``arrays``, and only a cast copies.
    """
    import jax
    import jax.numpy as jnp

    if function is not None:
        proxies = MappingProxyType(arrays), layouts, MappingProxyType(additional)
        try:
            result = function(*proxies, group)
            rows = len(next(iter(arrays.values())))
            check_arrays(result, layouts, rows, "placement_func")
        except Exception as error:
            setattr(error, ITEM, None)  # a function of the user raised it
            raise
        return dict(result)
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
    made = {**jax.device_put(same), **cast}
    return {name: made[name] for name in arrays}


def _check_range(name: str, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    """Raises ``OverflowError`` if narrowing 64-bit integers would change them."""
    narrows = array.dtype.kind in "iu" and array.dtype.itemsize > dtype.itemsize == 4
    if narrows and dtype.kind in "iu" and (text := overflow(array, dtype)):
        raise OverflowError(
            f"the array {name!r}: {text}. Set jax_enable_x64, or declare a dtype that "
            "holds them."
        )


def canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that JAX uses for ``dtype``. Without x64 JAX has no 64-bit types."""
    if dtype.itemsize < 8:
        return dtype
    import jax

    return np.dtype(jax.dtypes.canonicalize_dtype(dtype))


def check_arrays(arrays: Any, layouts: Layouts, rows: int, who: str) -> None:
    """Raises unless ``arrays`` are JAX arrays that match the layouts and ``rows``."""
    import jax

    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"{who}: arrays has non-dict type {type(arrays).__name__}; expected a dict "
            "of JAX arrays"
        )
    for name in sorted(arrays.keys() ^ layouts.keys()):
        problem = "was not provided" if name in layouts else "has unexpected name"
        raise ValueError(f"{who}: array {name!r} {problem}; expected {list(layouts)}")
    for name, (full, _, dtype, _, _) in layouts.items():
        array, shape = arrays[name], (rows, *full[1:])
        what = f"{who}: array {name!r}"
        if not isinstance(array, jax.Array):
            raise TypeError(
                f"{what} of type {type(array).__name__} is not a JAX array. Use "
                "jax.device_put."
            )
        if array.shape != shape:
            raise ValueError(f"{what} has shape {array.shape}, not {shape}")
        if array.dtype != canonical(dtype):
            raise ValueError(f"{what} has dtype {array.dtype}, not {canonical(dtype)}")


def check_additional(additional: Any, rows: int) -> None:
    """Raises unless every key has a list with one value per row."""
    if not isinstance(additional, Mapping):
        raise TypeError(
            f"additional data has non-dict type {type(additional).__name__}"
        )
    for key, values in additional.items():
        what = f"additional data {key!r}"
        if not isinstance(values, list):
            raise TypeError(f"{what} of type {type(values).__name__} is not a list")
        if len(values) != rows:
            raise ValueError(f"{what} has length {len(values)}, expected {rows}")
