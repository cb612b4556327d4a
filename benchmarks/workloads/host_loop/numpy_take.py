"""The gather alone: `np.take` into one recycled batch, nothing handed over."""

from collections.abc import Callable, Iterator

import numpy as np

from dataset import BATCH, SCALE, Arrays
from workloads.host_loop.workload import Loop

Batch = tuple[np.ndarray, np.ndarray]


def taken(
    data: Arrays, normalize: bool, destination: Callable[..., np.ndarray]
) -> Callable[[], Iterator[Batch]]:
    """Epochs of batches gathered into what `destination(shape, dtype)` gives."""
    generator = np.random.default_rng(0)
    pixels = np.empty((BATCH, *data.image.shape[1:]), np.uint8)

    def epoch() -> Iterator[Batch]:
        order = generator.permutation(len(data))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            shape = (len(chosen), *data.image.shape[1:])
            label = destination(chosen.shape, np.int32)
            np.take(data.label, chosen, out=label, mode="clip")
            if normalize:
                raw = pixels[: len(chosen)]
                np.take(data.image, chosen, axis=0, out=raw, mode="clip")
                image = destination(shape, np.float32)
                np.multiply(raw, SCALE, out=image, dtype=np.float32)
            else:
                image = destination(shape, np.uint8)
                np.take(data.image, chosen, axis=0, out=image, mode="clip")
            yield image, label

    return epoch


def recycled() -> Callable[..., np.ndarray]:
    """A destination that gives the same memory again for the same shape and type."""
    known: dict[tuple, np.ndarray] = {}

    def destination(shape: tuple[int, ...], dtype: type) -> np.ndarray:
        if (shape, dtype) not in known:
            known[shape, dtype] = np.empty(shape, dtype)
        return known[shape, dtype]

    return destination


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays that stay where they are."""
    return Loop(taken(data, normalize, recycled()), deliver=None, reaches_jax=False)
