"""Torch with a batch sampler as its sampler, over a map of the file."""

from pathlib import Path

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from workloads.disk_cold.workload import BATCH, Epoch, loop_of


class Batches(Dataset):
    """A dataset indexed by a list: what comes back is a batch."""

    def __init__(self, path: Path) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: list[int]) -> np.ndarray:
        return np.asarray(self.rows[indices])


def build(path: Path) -> Epoch:
    """The epoch of the loop; JAX computes while the next batch is read."""
    dataset = Batches(path)
    sampler = BatchSampler(RandomSampler(dataset), BATCH, drop_last=False)
    loader = DataLoader(
        dataset, batch_size=None, sampler=sampler, collate_fn=lambda batch: batch
    )
    return loop_of(lambda: loader)
