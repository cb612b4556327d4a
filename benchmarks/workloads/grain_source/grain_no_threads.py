"""Grain's DataLoader as in the tutorial, but without its 16 read threads.

The threads compete for the GIL, because the source is Python code.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import grain

from dataset import BATCH
from workloads.grain_source.workload import Digits, Loop

NO_THREADS = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def loop_of(digits: Digits, read: grain.ReadOptions) -> Loop:
    """The loop over a loader in this process, with a new order in each epoch."""
    seeds = count()

    def epoch() -> Iterator[Any]:
        sampler = grain.samplers.IndexSampler(
            len(digits), shuffle=True, num_epochs=1, seed=next(seeds)
        )
        loader = grain.DataLoader(
            data_source=digits,
            sampler=sampler,
            operations=[grain.transforms.Batch(BATCH)],
            worker_count=0,
            read_options=read,
        )
        return iter(loader)

    return Loop(epoch)


def build(digits: Digits) -> Loop:
    """The loop without threads."""
    return loop_of(digits, NO_THREADS)
