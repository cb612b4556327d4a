"""Millstream's `IterableSource`, with its default prefetching."""

import millstream as ms

from streams import Stream
from workloads.iterable.workload import BATCH, samples


def build() -> Stream:
    """The loop over `run`."""
    loader = ms.DataLoader([ms.IterableSource(samples), ms.BatchTransform(BATCH)])
    return Stream(
        lambda: (batch for batch, _ in loader.run(seed=0, epochs=1)), shuffled=False
    )
