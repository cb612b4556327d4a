"""Grain over a source whose records are whole batches, without its threads.

Two threads are slower, and worker processes would send 38 MB per batch.
"""

import numpy as np

from peers.grain_batches import NO_THREADS, epochs
from streams import Stream
from workloads.normalize_channels.workload import BATCH, IMAGES, gathered


def build(images: np.ndarray) -> Stream:
    """The stream of NumPy arrays."""
    return Stream(
        epochs(IMAGES, BATCH, lambda chosen: gathered(images, chosen), NO_THREADS)
    )
