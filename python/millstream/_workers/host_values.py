"""Host values: Python values of samples that are not arrays."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

Encoded = bytes | tuple[Any]
"""A host value from the engine: pickled by a worker process, or alone in a tuple."""


def decoded(value: Encoded) -> Any:
    """Returns the host value."""
    # Unpickling is safe: the bytes come from a process that Millstream started.
    return pickle.loads(value) if isinstance(value, bytes) else value[0]


def host_value_rows(values: Sequence[tuple[int, Encoded]], rows: int) -> list[Any]:
    """Returns one host value per row of a batch, or None for rows without one.

    ``values`` has the number of a row and its value.
    """
    found: list[Any] = [None] * rows
    for row, value in values:
        found[row] = decoded(value)
    return found
