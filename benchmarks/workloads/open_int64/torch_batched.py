"""Torch with a sampler of batches: the data set sees a tensor of indices.

The sampler splits an int32 `randperm`. `RandomSampler` would make a list of 1e8
numbers, which takes 5 GB.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from dataset import BATCH


class Labels(Dataset):
    """A data set that returns a batch for a tensor of indices."""

    def __init__(self, labels: np.ndarray) -> None:
        self.labels = torch.from_numpy(labels)

    def __getitem__(self, indices: torch.Tensor) -> torch.Tensor:
        return self.labels[indices]


class Batches(Sampler[torch.Tensor]):
    """Shuffled batches of indices."""

    def __init__(self, length: int, seed: int) -> None:
        self.length = length
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[torch.Tensor]:
        order = torch.randperm(self.length, generator=self.generator, dtype=torch.int32)
        return (order[at : at + BATCH] for at in range(0, self.length, BATCH))


def build(labels: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """The batches of a new loader, as NumPy views."""
    sampler = Batches(len(labels), seed)
    loader = DataLoader(Labels(labels), batch_size=None, sampler=sampler)
    return (batch.numpy() for batch in loader)
