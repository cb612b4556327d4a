"""The base class of descriptions: sources, stages and orders of a pipeline."""

from __future__ import annotations

from dataclasses import fields
from pathlib import PurePath
from typing import Any

import numpy as np

_MAX_ENTRIES = 8
_MAX_TEXT = 120

Tree = Any

"""A pytree. If it describes fields, its leaves are their indices in the engine."""


class Description:
    """A base class of frozen dataclasses, compared by value and hashed by identity.

    It replaces the ``__eq__`` of `dataclass`, which cannot compare arrays, and the
    ``__repr__``, which prints them.
    """

    def __init_subclass__(cls) -> None:
        # `dataclass` only adds a `__repr__` to a class that does not define one.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Description.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """The class and its arguments in one line, with shapes in place of arrays."""
        arguments = [
            f"{field.name}={brief(getattr(self, field.name))}"
            for field in fields(self)  # type: ignore[arg-type]
            if field.repr
        ]
        origin = self.__dict__.get("_origin")  # what as_source recognised
        if origin is not None:
            arguments.append(f"origin={origin!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)
            for a, b in (
                (getattr(self, field.name), getattr(other, field.name))
                for field in fields(self)  # type: ignore[arg-type]
                if field.compare
            )
        )

    __hash__ = object.__hash__


def brief(value: Any) -> str:
    """Returns ``repr(value)`` in one short line, with shapes in place of arrays."""
    if hasattr(value, "dtype") and hasattr(value, "shape") and np.ndim(value):
        return f"{value.dtype}{list(value.shape)}"
    if type(value) is dict:
        entries = [f"{key!r}: {brief(entry)}" for key, entry in value.items()]
        return f"{{{_joined(entries)}}}"
    if type(value) is list:
        return f"[{_joined([brief(entry) for entry in value])}]"
    if type(value) is tuple:
        only = "," if len(value) == 1 else ""
        return f"({_joined([brief(entry) for entry in value])}{only})"
    if isinstance(value, Description | str | int | float | PurePath):
        return repr(value)
    name = getattr(value, "__qualname__", None)
    text = name if callable(value) and name else " ".join(repr(value).split())
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _joined(entries: list[str]) -> str:
    more = ["..."] if len(entries) > _MAX_ENTRIES else []
    return ", ".join([*entries[:_MAX_ENTRIES], *more])
