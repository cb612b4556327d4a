"""Grain over a source whose records are whole batches, gathered on two threads.

One record per row would need a Python call per row. `np.take` releases the GIL.
"""

import numpy as np

from peers.grain_batches import epochs
from streams import Stream
from workloads.table.workload import BATCH, ROWS


def build(table: dict[str, np.ndarray]) -> Stream:
    """The stream of dicts of NumPy arrays."""

    def gather(chosen: np.ndarray) -> dict[str, np.ndarray]:
        return {
            name: np.take(column, chosen, mode="clip") for name, column in table.items()
        }

    return Stream(epochs(ROWS, BATCH, gather))
