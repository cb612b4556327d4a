"""Torch's DataLoader in this process, with its default collation.

The step takes NumPy views of the tensors, which costs less than DLPack.
"""

from torch.utils.data import DataLoader

from dataset import BATCH
from torch_images import Images
from workloads.torch_dataset.workload import Loop


def build(images: Images) -> Loop:
    """The loop over batches of tensors."""
    loader = DataLoader(images, BATCH, shuffle=True)
    return Loop(lambda: loader)
