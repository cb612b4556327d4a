"""Torch's DataLoader in this process, with a collation that stacks NumPy arrays."""

from typing import Any

import numpy as np

from streams import Stream
from workloads.iterable.torch_0_workers import stream_of


def stacked(rows: list[Any]) -> Any:
    """The batch of some rows."""
    return {
        "x": np.stack([row["x"] for row in rows]),
        "y": np.array([row["y"] for row in rows], np.int32),
    }


def build() -> Stream:
    """The loop over batches of NumPy arrays."""
    return stream_of(stacked, lambda batch: batch)
