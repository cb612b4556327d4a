"""Torch as the JAX tutorial uses it: samples collated, then seen as NumPy arrays."""

import jax
import numpy as np
from torch.utils.data import DataLoader, Dataset, default_collate

from dataset import BATCH, Arrays, normalized
from workloads.host_loop.workload import Loop


class Samples(Dataset):
    """A dataset of single samples."""

    def __init__(self, data: Arrays, normalize: bool) -> None:
        self.data = data
        self.normalize = normalize

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int32]:
        image = self.data.image[index]
        return normalized(image) if self.normalize else image, self.data.label[index]


def collated(samples: list) -> list:
    """A batch of NumPy arrays, by way of tensors."""
    return jax.tree.map(np.asarray, default_collate(samples))


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    loader = DataLoader(
        Samples(data, normalize),
        batch_size=BATCH,
        shuffle=True,
        collate_fn=collated,
    )
    return Loop(lambda: loader)
