"""Millstream's loader with torch's interface: the tensors become arrays."""

from millstream.torch import DataLoader
from torch.utils.data import TensorDataset

from dataset import BATCH
from workloads.torch_dataset.workload import Loop


def build(dataset: TensorDataset) -> Loop:
    """The loop over batches of JAX arrays."""
    loader = DataLoader(dataset, BATCH, shuffle=True)
    return Loop(lambda: loader, lambda batch: (*batch, None))
