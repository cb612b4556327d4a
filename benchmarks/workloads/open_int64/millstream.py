"""Millstream's `iterate` over an array in memory, as its README shows it.

The source takes the int64 labels as they are; every option has its default value.
"""

from collections.abc import Iterator

import jax
import millstream as ms
import numpy as np

from dataset import BATCH


def build(labels: np.ndarray, seed: int) -> Iterator[jax.Array]:
    """The batches of a new loader."""
    loader = ms.DataLoader(
        [ms.ArraySampleSource({"label": labels}), ms.BatchTransform(BATCH)]
    )
    return (batch["label"] for batch, _ in loader.iterate(loader.init_state(seed)))
