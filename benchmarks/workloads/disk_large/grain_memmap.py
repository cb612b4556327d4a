"""Grain over a source whose records are whole batches of the memory map.

Grain's threads are off: they need more than twice the CPU time.
"""

from pathlib import Path

from peers.grain_batches import NO_THREADS, epochs, rows_taken
from streams import Stream
from workloads.disk_large.workload import BATCH, ROWS, mapped


def build(path: Path) -> Stream:
    """The stream of NumPy arrays."""
    return Stream(epochs(ROWS, BATCH, rows_taken(mapped(path)), NO_THREADS))
