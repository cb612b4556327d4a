"""torch's DataLoader over a mapped file; its sampler yields arrays of indices.

Without worker processes, because JAX computes a step while the loop reads the next
batch: an epoch with two workers takes 1.5 times as long.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from workloads.disk_cold.workload import BATCH, Epoch, loop_of

WORKERS = 0


class IndexArrays(Sampler):
    """Batches of indices as NumPy arrays, each epoch in another order."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length // BATCH

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(torch.randperm(self.length).numpy().reshape(-1, BATCH))


class Batches(Dataset):
    """A data set that returns a batch for an array of indices."""

    def __init__(self, path: Path) -> None:
        self.rows = np.asarray(np.load(path, mmap_mode="r"))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        return self.rows.take(indices, axis=0)


def unchanged(batch: np.ndarray) -> np.ndarray:
    """Replaces the default collation, which converts NumPy arrays to tensors."""
    return batch


def build(path: Path) -> Epoch:
    """The epoch of a Python loop."""
    dataset = Batches(path)
    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=IndexArrays(len(dataset)),
        collate_fn=unchanged,
        num_workers=WORKERS,
    )
    return loop_of(lambda: loader)
