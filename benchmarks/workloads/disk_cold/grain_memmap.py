"""Grain over shuffled indices, each batch gathered at once from a map of the file."""

from collections.abc import Iterable
from pathlib import Path

import grain
import numpy as np

from workloads.disk_cold.workload import BATCH, Epoch, loop_of

READ = grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)


def build(path: Path) -> Epoch:
    """The epoch of the loop; batches are read ahead on threads."""
    rows = np.load(path, mmap_mode="r")
    indices = grain.MapDataset.range(len(rows))

    def epoch() -> Iterable[np.ndarray]:
        chosen = indices.shuffle(seed=0).batch(BATCH, batch_fn=np.asarray)
        return chosen.map(lambda some: np.asarray(rows[some])).to_iter_dataset(READ)

    return loop_of(epoch)
