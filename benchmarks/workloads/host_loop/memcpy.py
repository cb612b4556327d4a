"""Copies the bytes of each batch, in the order of the source, into one reused batch.

With normalisation it also casts and scales them. Does not include a shuffle or passing
the batch to JAX.
"""

from collections.abc import Iterator

import numpy as np

from dataset import BATCH, SCALE, Arrays
from workloads.host_loop.workload import Loop


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over plain copies."""
    image = np.empty((BATCH, 28, 28), np.float32 if normalize else np.uint8)
    label = np.empty(BATCH, np.int32)

    def epoch() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(data), BATCH):
            part = slice(start, start + BATCH)
            size = min(BATCH, len(data) - start)
            if normalize:
                np.multiply(data.image[part], SCALE, out=image[:size])
            else:
                np.copyto(image[:size], data.image[part])
            np.copyto(label[:size], data.label[part])
            yield image[:size], label[:size]

    return Loop(epoch, reaches_jax=False, shuffled=False)
