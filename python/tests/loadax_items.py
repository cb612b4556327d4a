"""Functions that worker processes of the tests call: they have to be importable."""

from __future__ import annotations

import os
import sys

import numpy as np


def doubled(x: int) -> int:
    return 2 * x


def process(x: int) -> int:
    """The process that runs it."""
    del x
    return os.getpid()


def has_jax(x: int) -> bool:
    """Whether the process that runs it has imported jax."""
    del x
    return "jax" in sys.modules


def fail_at_five(x: int) -> int:
    if x == 5:
        raise KeyError("no 5")
    return x


def rows(x: int) -> dict[str, np.ndarray | int]:
    return {"row": np.full((2, 3), x, np.uint8), "label": x}
