"""Millstream's `iterate`, as its README shows it.

Every option has its default value.
"""

from itertools import count
from typing import Any

import millstream as ms

from dataset import BATCH, Arrays
from workloads.host_loop.workload import Loop, masked_fields


def batched(source: Any, *, normalize: bool = False) -> ms.DataLoader:
    """The loader that every Millstream contender over Fashion-MNIST uses."""
    return ms.DataLoader(
        pipeline=[
            source,
            *([ms.NormalizeImageTransform()] if normalize else []),
            ms.BatchTransform(batch_size=BATCH),
            ms.DevicePutTransform(),
        ]
    )


def loader_of(data: Arrays, *, normalize: bool = False) -> ms.DataLoader:
    """The loader over arrays in memory."""
    source = ms.ArraySampleSource(data.as_dict(), ordering="shuffle")
    return batched(source, normalize=normalize)


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over arrays in memory."""
    return loop_of(loader_of(data, normalize=normalize))


def loop_of(loader: ms.DataLoader) -> Loop:
    """The loop over `iterate`, with another seed in each epoch."""
    seeds = count()
    return Loop(lambda: loader.iterate(loader.init_state(next(seeds))), masked_fields)
