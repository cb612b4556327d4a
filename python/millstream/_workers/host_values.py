"""What travels beside a batch: values that are no arrays."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any


def beside_rows(parts: Sequence[tuple[list[int], Any]], rows: int) -> list[Any]:
    """What travels beside a batch, a value a row; None where there is none."""
    values: list[Any] = [None] * rows
    for at, part in parts:
        # Bytes are of a worker process that this one started.
        listed = pickle.loads(part) if isinstance(part, bytes) else part
        for row, value in zip(at, listed, strict=True):
            values[row] = value
    return values
