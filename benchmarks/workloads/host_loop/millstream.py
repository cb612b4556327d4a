"""Millstream's host loop."""

from itertools import count

import millstream as ms

from dataset import BATCH, Arrays
from workloads.host_loop.workload import Loop, masked_fields


def loader_of(data: Arrays, *, normalize: bool = False) -> ms.DataLoader:
    """The loader that every Millstream contender over Fashion-MNIST uses."""
    return ms.DataLoader(
        pipeline=[
            ms.ArraySampleSource(data.as_dict(), ordering="shuffle"),
            *([ms.NormalizeImageTransform()] if normalize else []),
            ms.BatchTransform(batch_size=BATCH),
            ms.DevicePutTransform(),
        ]
    )


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over `iterate`, another seed each epoch."""
    loader = loader_of(data, normalize=normalize)
    seeds = count()
    return Loop(
        lambda: loader.iterate(loader.init_state(next(seeds))),
        masked_fields,
        deliver=None,
    )
