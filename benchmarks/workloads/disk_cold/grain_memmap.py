"""Grain over a source whose items are batches of a mapped file, read by four threads.

With 0, 1, 4 or 16 threads the times differ by less than the noise. The source permutes
with NumPy: Grain's own shuffle maps one index at a time.
"""

from collections.abc import Iterable
from itertools import count
from pathlib import Path

import grain
import numpy as np

from workloads.disk_cold.workload import BATCH, Epoch, loop_of

READ = grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)


class Batches:
    """A random-access source of the batches of one epoch."""

    def __init__(self, rows: np.ndarray, seed: int) -> None:
        self.rows = rows
        order = np.random.default_rng(seed).permutation(len(rows))
        self.order = order.reshape(-1, BATCH)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, number: int) -> np.ndarray:
        return self.rows.take(self.order[number], axis=0)


def build(path: Path) -> Epoch:
    """The epoch of a Python loop; threads read batches ahead."""
    rows = np.asarray(np.load(path, mmap_mode="r"))
    seeds = count()

    def epoch() -> Iterable[np.ndarray]:
        batches = grain.MapDataset.source(Batches(rows, next(seeds)))
        return batches.to_iter_dataset(READ)

    return loop_of(epoch)
