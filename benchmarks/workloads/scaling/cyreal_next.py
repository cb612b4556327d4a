"""Cyreal's next; its state is a permutation and it copies it for every sample."""

import jax
import numpy as np
from cyreal.loader import DataLoader
from cyreal.sources import ArraySource
from cyreal.transforms import BatchTransform

from dataset import BATCH
from workloads.scaling.workload import Stepper, stepper_of

LARGEST = 10**6
STEPS = 20


def build(rows: np.ndarray) -> Stepper:
    """The steps of a loader over the rows, copied to the device."""
    source = ArraySource({"row": jax.device_put(rows)}, ordering="shuffle")
    loader = DataLoader(
        pipeline=[source, BatchTransform(batch_size=BATCH, pad_last_batch=True)]
    )
    return stepper_of(loader, loader.next, jax.random.PRNGKey(0))
