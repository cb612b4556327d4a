"""Grain over shuffled indices, each batch gathered at once."""

from itertools import count

import grain
import numpy as np

from dataset import BATCH, Arrays
from workloads.host_loop.grain_map import Samples
from workloads.host_loop.workload import Loop, fields

READ = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    samples = Samples(data, normalize)
    indices = grain.MapDataset.range(len(data))
    seeds = count()

    def epoch() -> grain.IterDataset:
        chosen = indices.shuffle(seed=next(seeds)).batch(BATCH, batch_fn=np.asarray)
        return chosen.map(samples.__getitem__).to_iter_dataset(READ)

    return Loop(epoch, fields)
