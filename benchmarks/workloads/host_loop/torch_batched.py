"""Torch with a batch sampler as its sampler: the dataset sees a list of indices."""

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

from dataset import BATCH, Arrays, normalized
from workloads.host_loop.workload import Loop


class Batches(Dataset):
    """A dataset indexed by a list: what comes back is a batch."""

    def __init__(self, data: Arrays, normalize: bool) -> None:
        self.data = data
        self.normalize = normalize

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, indices: list[int]) -> tuple[np.ndarray, np.ndarray]:
        image = self.data.image[indices]
        return normalized(image) if self.normalize else image, self.data.label[indices]


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    dataset = Batches(data, normalize)
    sampler = BatchSampler(RandomSampler(dataset), BATCH, drop_last=False)
    loader = DataLoader(
        dataset, batch_size=None, sampler=sampler, collate_fn=lambda batch: batch
    )
    return Loop(lambda: loader)
