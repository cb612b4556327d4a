"""tf.data over slices of a permutation: a parallel `map` gathers each batch.

tf.data cannot read a memory map itself, so `numpy_function` calls NumPy.
"""

from pathlib import Path

from peers.tfdata_batches import epochs, rows_taken
from streams import Stream
from workloads.token_windows.workload import BATCH, WINDOW, WINDOWS, mapped


def build(path: Path) -> Stream:
    """The stream of NumPy arrays."""
    windows = mapped(path).reshape(-1, WINDOW)
    return Stream(epochs(WINDOWS, BATCH, rows_taken(windows, BATCH)))
