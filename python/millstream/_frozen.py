"""Descriptions: values that are set once, shown and compared by their fields.

`dataclass(frozen=True)` does the same, but compiles six methods for each class when it
is imported, and importing Millstream is to be fast.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np


class Frozen:
    """A base for ``@dataclass(eq=False, repr=False)``: fields cannot be set again."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if f.repr]  # type: ignore[arg-type]
        shown.sort(key=lambda f: f.kw_only is True)  # as they are given in a call
        inner = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in shown)
        return f"{type(self).__name__}({inner})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _same(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)  # type: ignore[arg-type]
            if f.compare
        )

    __hash__ = object.__hash__


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)
