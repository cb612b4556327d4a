"""Millstream's next_batch."""

import millstream as ms
import numpy as np

from dataset import BATCH
from workloads.scaling.workload import Stepper, stepper_of

LARGEST = 10**9


def build(rows: np.ndarray) -> Stepper:
    """The steps of a loader over rows that are never copied."""
    loader = ms.DataLoader(
        pipeline=[
            ms.ArraySampleSource({"row": rows}, ordering="shuffle"),
            ms.BatchTransform(batch_size=BATCH),
        ]
    )
    return stepper_of(loader, loader.next_batch, 0)
