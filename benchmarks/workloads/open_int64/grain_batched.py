"""Grain over shuffled indices, each batch gathered at once.

Its shuffle computes each index and makes no table; one thread is enough for a batch.
"""

from collections.abc import Iterator

import grain
import numpy as np

from dataset import BATCH

READ = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)


def build(labels: np.ndarray, seed: int) -> Iterator[np.ndarray]:
    """The batches of a new data set."""
    indices = grain.MapDataset.range(len(labels)).shuffle(seed=seed)
    chosen = indices.batch(BATCH, batch_fn=np.asarray)
    return iter(chosen.map(labels.__getitem__).to_iter_dataset(READ))
