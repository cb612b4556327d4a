"""Host values: Python values of samples that are not arrays."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any


def host_value_rows(chunks: Sequence[tuple[list[int], Any]], rows: int) -> list[Any]:
    """Returns one host value per row of a batch, or None for rows without one.

    ``chunks`` has (row numbers, values) of each chunk of the batch. The values are
    pickled if a worker process made them.
    """
    values: list[Any] = [None] * rows
    for numbers, chunk in chunks:
        # Unpickling is safe: this process started the worker that sent the bytes.
        chunk_values = pickle.loads(chunk) if isinstance(chunk, bytes) else chunk
        for row, value in zip(numbers, chunk_values, strict=True):
            values[row] = value
    return values
