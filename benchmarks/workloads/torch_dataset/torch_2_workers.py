"""Torch's DataLoader with two persistent workers and its default collation.

Each worker collates into shared memory and prefetches four batches.
"""

from torch.utils.data import DataLoader

from dataset import BATCH
from torch_images import Images
from workloads.torch_dataset.workload import Loop


def build(images: Images) -> Loop:
    """The loop over batches of tensors."""
    loader = DataLoader(
        images,
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        prefetch_factor=4,
    )
    return Loop(lambda: loader)
