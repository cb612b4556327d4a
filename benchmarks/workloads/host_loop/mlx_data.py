"""mlx-data: a shuffled buffer, batched on two threads."""

import mlx.data as dx
import numpy as np

from dataset import BATCH, Arrays, normalized
from workloads.host_loop.workload import Loop, fields


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    buffer = dx.buffer_from_vector(
        [
            {"image": image, "label": np.asarray(label)}
            for image, label in zip(data.image, data.label, strict=True)
        ]
    )

    def epoch() -> dx.Stream:
        batches = buffer.shuffle().batch(BATCH)
        if normalize:
            batches = batches.key_transform("image", normalized)
        return batches.ordered_prefetch(8, 2)

    return Loop(epoch, fields)
