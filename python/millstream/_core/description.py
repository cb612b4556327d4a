"""Values that describe a part of a pipeline."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

Tree = Any

"""A pytree. Where fields are meant, its leaves are their positions in the engine."""


class Description:
    """A base of frozen dataclasses that are compared by value and hashed by identity.

    The equality of `dataclass` cannot compare fields that are arrays.
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
