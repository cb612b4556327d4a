"""Grain's MapDataset over single samples, read in the caller's thread.

The threads it reads with by default make it three times as slow in memory.
"""

from itertools import count

import grain

from dataset import BATCH, Arrays, normalized
from workloads.host_loop.workload import Loop, fields

READ = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


class Samples:
    """A random access source of dictionaries."""

    def __init__(self, data: Arrays, normalize: bool = False) -> None:
        self.data = data
        self.normalize = normalize

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict:
        image = self.data.image[index]
        return {
            "image": normalized(image) if self.normalize else image,
            "label": self.data.label[index],
        }


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    source = grain.MapDataset.source(Samples(data, normalize))
    seeds = count()

    def epoch() -> grain.IterDataset:
        batches = source.shuffle(seed=next(seeds)).batch(BATCH)
        return batches.to_iter_dataset(READ)

    return Loop(epoch, fields)
