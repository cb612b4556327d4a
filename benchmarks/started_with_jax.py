"""The function of `started.py` in a module that also imports JAX."""

import jax

from started import numbered as number

__all__ = ["jax", "numbered"]


def numbered(index: int):
    """A sample that holds its number."""
    return number(index)
