"""Grain over a source whose records are whole batches of the memory map.

Grain's threads are off: passing a batch between threads costs more than gathering it.
"""

from pathlib import Path

from peers.grain_batches import NO_THREADS, epochs, rows_taken
from streams import Stream
from workloads.token_windows.workload import BATCH, WINDOW, WINDOWS, mapped


def build(path: Path) -> Stream:
    """The stream of NumPy arrays."""
    windows = mapped(path).reshape(-1, WINDOW)
    return Stream(epochs(WINDOWS, BATCH, rows_taken(windows), NO_THREADS))
