"""Numbers among the arguments."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def whole(name: str, value: Any, least: int, most: float = (1 << 63) - 1) -> int:
    """``value``, also of NumPy's, as an int; ``ValueError`` names what was given."""
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


def number(name: str, value: Any) -> float:
    """``value`` as a float; ``TypeError`` names what was given."""
    try:
        if isinstance(value, str | bytes) or np.ndim(value):
            raise TypeError
        return float(value)
    except TypeError:
        raise TypeError(f"{name} must be a number, not {value!r}") from None
