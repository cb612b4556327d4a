"""Marks what users import from `millstream`."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def public(value: T) -> T:
    """Make `millstream` the module of a class or function.

    A pickle names the module of each class, so pickled states and errors can still be
    read after the file of a class moves. Outermost of the decorators, because
    `dataclass` looks up names in the module in which the class is defined.
    """
    value.__module__ = "millstream"
    return value
