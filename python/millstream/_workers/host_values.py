"""Host values: what functions return that is not an array."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any


def host_value_rows(parts: Sequence[tuple[list[int], Any]], rows: int) -> list[Any]:
    """The host values of a batch, one for each row; None where there is none."""
    values: list[Any] = [None] * rows
    for at, part in parts:
        # Bytes are of a worker process that this one started.
        listed = pickle.loads(part) if isinstance(part, bytes) else part
        for row, value in zip(at, listed, strict=True):
            values[row] = value
    return values
