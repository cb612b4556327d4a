"""tf.data over slices of a permutation: a parallel `map` gathers each batch.

tf.data cannot read a memory map itself, so `numpy_function` calls NumPy.
"""

from pathlib import Path

from peers.tfdata_batches import epochs, rows_taken
from streams import Stream
from workloads.disk_large.workload import BATCH, ROWS, mapped


def build(path: Path) -> Stream:
    """The stream of NumPy arrays."""
    return Stream(epochs(ROWS, BATCH, rows_taken(mapped(path), BATCH)))
