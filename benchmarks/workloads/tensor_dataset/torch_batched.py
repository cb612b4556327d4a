"""Torch's DataLoader whose sampler yields tensors of indices, without collation.

`TensorDataset` indexes each tensor once per batch. Slices of one permutation cost less
than the lists of `BatchSampler`. torch uses one thread, because synchronising two is
slower.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

from dataset import BATCH
from peers.torch_batches import Permuted
from workloads.torch_dataset.workload import Loop


class AllPermuted(Permuted):
    """Includes the incomplete last batch."""

    def __len__(self) -> int:
        return -(-self.rows // self.batch)


def build(dataset: TensorDataset) -> Loop:
    """The loop over batches of tensors."""
    torch.set_num_threads(1)
    sampler = AllPermuted(len(dataset), BATCH)
    loader = DataLoader(dataset, batch_size=None, sampler=sampler)
    return Loop(lambda: loader)
