"""Grain's DataLoader as the JAX tutorial uses it, in this process."""

from itertools import count

import grain

from dataset import BATCH, Arrays
from workloads.host_loop.grain_map import READ, Samples
from workloads.host_loop.workload import Loop, fields


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    samples = Samples(data, normalize)
    seeds = count()

    def epoch() -> grain.DataLoader:
        sampler = grain.samplers.IndexSampler(
            len(data), shuffle=True, seed=next(seeds), num_epochs=1
        )
        return grain.DataLoader(
            data_source=samples,
            sampler=sampler,
            operations=[grain.transforms.Batch(BATCH)],
            worker_count=0,
            read_options=READ,
        )

    return Loop(epoch, fields)
