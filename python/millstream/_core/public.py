"""A decorator for the classes and functions that users import from `millstream`."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def public(value: T) -> T:
    """Make `millstream` the module of a class or function.

    A pickle names the module of each class. Pickled states and errors can therefore
    still be read after a class moves to another file. Use it as the outermost
    decorator, because `dataclass` looks up names in the module that defines the class.
    """
    value.__module__ = "millstream"
    return value
