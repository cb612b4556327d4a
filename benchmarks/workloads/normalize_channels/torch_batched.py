"""torch with a sampler of whole batches; each image is normalised in place.

One image at a time stays in the processor's cache: faster than a whole batch at once.
"""

import numpy as np
import torch

from peers.torch_batches import epochs
from streams import Stream
from workloads.normalize_channels.workload import (
    BATCH,
    IMAGES,
    ROW_FACTOR,
    ROW_OFFSET,
    SHAPE,
    SIDE,
)


def build(images: np.ndarray) -> Stream:
    """The stream of NumPy arrays that share the tensors' memory."""
    rows = torch.from_numpy(images.reshape(IMAGES, SIDE, -1))
    factor, offset = torch.from_numpy(ROW_FACTOR), torch.from_numpy(ROW_OFFSET)

    def gather(chosen: torch.Tensor) -> np.ndarray:
        batch = torch.empty((BATCH, *rows.shape[1:]))
        for image, number in zip(batch, chosen.tolist(), strict=True):
            image.copy_(rows[number]).mul_(factor).add_(offset)
        return batch.view(BATCH, *SHAPE).numpy()

    return Stream(epochs(IMAGES, BATCH, gather))
