"""Torch with a sampler of batches: the data set sees a tensor of indices.

The sampler splits an int32 `randperm`. `RandomSampler` would make a list of 1e8
numbers, which takes 5 GB and several times as long.
"""

from collections.abc import Iterator

import jax
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Records(Dataset):
    """A data set indexed by a tensor: what comes back is a batch."""

    def __init__(self, records: np.ndarray) -> None:
        self.records = torch.from_numpy(records)

    def __getitem__(self, indices: torch.Tensor) -> torch.Tensor:
        return self.records[indices]


class Batches(Sampler[torch.Tensor]):
    """Shuffled batches of indices."""

    def __init__(self, length: int, batch_size: int) -> None:
        self.length = length
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = torch.randperm(self.length, dtype=torch.int32)
        size = self.batch_size
        return (order[at : at + size] for at in range(0, self.length, size))


def first_batch(records: np.ndarray, batch_size: int) -> jax.Array:
    """The first batch on the device."""
    sampler = Batches(len(records), batch_size)
    loader = DataLoader(Records(records), batch_size=None, sampler=sampler)
    return jax.block_until_ready(jax.device_put(next(iter(loader)).numpy()))
