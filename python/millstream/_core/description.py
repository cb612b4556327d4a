"""The base class of descriptions: sources, stages and orders of a pipeline."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

Tree = Any

"""A pytree. If it describes fields, its leaves are their indices in the engine."""


class Description:
    """A base class of frozen dataclasses, compared by value and hashed by identity.

    It replaces the ``__eq__`` of `dataclass`, which cannot compare arrays.
    """

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
