"""Grain's MapDataset, shuffled and batched, read by index.

An iterator without read threads is a little slower. Read threads compete for the GIL,
because the source is Python code.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import grain

from dataset import BATCH
from workloads.grain_source.workload import Digits, Loop


def build(digits: Digits) -> Loop:
    """The loop over batches of NumPy arrays."""
    seeds = count()

    def epoch() -> Iterator[Any]:
        shuffled = grain.MapDataset.source(digits).shuffle(seed=next(seeds))
        batches = shuffled.batch(BATCH, drop_remainder=False)
        return (batches[i] for i in range(len(batches)))

    return Loop(epoch)
