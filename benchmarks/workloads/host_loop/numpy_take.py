"""By hand: `np.take` with `out=` into an array for each batch, given to the step.

`np.take` is faster than indexing; the jitted step takes NumPy arrays faster than
`device_put` does.
"""

from collections.abc import Callable, Iterator

import numpy as np

from dataset import BATCH, SCALE, Arrays
from workloads.host_loop.workload import Loop

Batch = tuple[np.ndarray, np.ndarray]


def taken(
    data: Arrays, normalize: bool, *, reuse: bool = False
) -> Callable[[], Iterator[Batch]]:
    """Epochs of batches in new arrays, or with ``reuse`` always in the same arrays."""
    generator = np.random.default_rng(0)
    shape = data.image.shape[1:]
    pixels = np.empty((BATCH, *shape), np.uint8)

    def batch_arrays() -> Batch:
        image = np.empty((BATCH, *shape), np.float32 if normalize else np.uint8)
        return image, np.empty(BATCH, np.int32)

    reused = batch_arrays()

    def epoch() -> Iterator[Batch]:
        order = generator.permutation(len(data))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            image, label = reused if reuse else batch_arrays()
            image, label = image[: len(chosen)], label[: len(chosen)]
            np.take(data.label, chosen, out=label, mode="clip")
            raw = pixels[: len(chosen)] if normalize else image
            np.take(data.image, chosen, axis=0, out=raw, mode="clip")
            if normalize:
                np.multiply(raw, SCALE, out=image, dtype=np.float32)
            yield image, label

    return epoch


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays."""
    return Loop(taken(data, normalize))
