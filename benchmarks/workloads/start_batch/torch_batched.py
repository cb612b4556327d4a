"""Torch with a batch sampler as its sampler."""

import jax
import numpy as np
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Records(Dataset):
    """A dataset indexed by a list: what comes back is a batch."""

    def __init__(self, records: np.ndarray) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, indices: list[int]) -> np.ndarray:
        return self.records[indices]


def first_batch(records: np.ndarray, batch_size: int) -> jax.Array:
    """The first batch on the device."""
    dataset = Records(records)
    sampler = BatchSampler(RandomSampler(dataset), batch_size, drop_last=False)
    loader = DataLoader(
        dataset, batch_size=None, sampler=sampler, collate_fn=lambda batch: batch
    )
    return jax.block_until_ready(jax.device_put(next(iter(loader))))
