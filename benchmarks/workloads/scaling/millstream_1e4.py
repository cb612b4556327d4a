"""Millstream's `next_batch` over 1e4 samples."""

from functools import partial

import millstream as ms

from dataset import BATCH
from workloads.scaling.workload import Stepper, rows_of, stepper_of


def stepper(size: int, steps: int = 78) -> Stepper:
    """The steps of a loader over rows that are never copied."""
    source = ms.ArraySampleSource({"row": rows_of(size)}, ordering="shuffle")
    loader = ms.DataLoader(pipeline=[source, ms.BatchTransform(batch_size=BATCH)])
    return stepper_of(loader, loader.next_batch, 0, steps)


build = partial(stepper, 10**4)
