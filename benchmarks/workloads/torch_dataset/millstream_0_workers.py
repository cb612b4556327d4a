"""`millstream.torch.DataLoader` over the same data set, with num_workers=0.

Its one thread makes batches ahead of the loop.
"""

from millstream.torch import DataLoader

from dataset import BATCH
from torch_images import Images
from workloads.torch_dataset.workload import Loop, plain


def build(images: Images, num_workers: int = 0) -> Loop:
    """The loop over batches of JAX arrays. Each epoch has another order."""
    loader = DataLoader(images, BATCH, shuffle=True, num_workers=num_workers)
    return Loop(lambda: loader, plain)
