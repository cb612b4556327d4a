"""Checks of arguments."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def whole(name: str, value: Any, least: int, most: float = (1 << 63) - 1) -> int:
    """Returns an integer in range as an int. Raises ``ValueError`` otherwise.

    NumPy integers are accepted, bools are not.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, not {value!r}"
        )
    if number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def choice(name: str, value: Any, *choices: str) -> str:
    """Returns ``value``. Raises ``ValueError`` unless it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        *most, last = map(repr, choices)
        comma = "," if len(most) > 1 else ""
        listed = f"{', '.join(most)}{comma} or {last}"
        raise ValueError(f"{name} must be {listed}; found {value!r}")
    return value


def overflow(value: np.ndarray, dtype: Any) -> str:
    """Says which integers of ``value`` do not fit the integer type ``dtype``.

    The text is empty if all of them fit.
    """
    limits = np.iinfo(dtype)
    low, high = (int(value.min()), int(value.max())) if value.size else (0, 0)
    if limits.min <= low and high <= limits.max:
        return ""
    return f"values from {low} to {high} do not fit {np.dtype(dtype)}"


def flag(name: str, value: Any) -> bool:
    """Returns a Python or NumPy bool as a bool. Raises ``TypeError`` otherwise."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def check_unmasked(name: str, value: Any) -> None:
    """Raises ``ValueError`` for a masked array with masked elements."""
    if not isinstance(value, np.ndarray) or not hasattr(value, "_mask"):
        return
    hidden = np.count_nonzero(value.mask)  # type: ignore[attr-defined]
    if hidden:
        raise ValueError(
            f"'{name}' is a masked array that hides {hidden} of its {value.size} "
            "elements, and JAX has no masked arrays. Pass array.filled(0), and "
            "np.ma.getmaskarray(array) as another field."
        )


def number(name: str, value: Any) -> float:
    """Returns ``value`` as a float. Raises ``TypeError`` unless it is a number."""
    try:
        if isinstance(value, str | bytes) or np.ndim(value):
            raise TypeError
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, not {value!r}") from None


def function(name: str, value: Any) -> Any:
    """Returns ``value``. Raises ``TypeError`` unless it is callable."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {type(value).__name__}")
    return value


def instance(name: str, value: Any, kind: type[Any]) -> Any:
    """Returns ``value``. Raises ``TypeError`` unless it is a ``kind``."""
    if not isinstance(value, kind):
        found = type(value).__name__
        raise TypeError(f"{name} must be a {kind.__name__}, not {found}")
    return value


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Returns ``value``. Raises ``ValueError`` unless it is one of ``choices``."""
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"{name} must be {expected}, not {value!r}")
    return str(value)


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accepts arguments of a function under other names."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given: Any = {names.get(name, name): kwargs[name] for name in kwargs}
            return function(*args, **given)

        return call

    return decorate
