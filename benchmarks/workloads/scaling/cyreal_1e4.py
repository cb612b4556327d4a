"""Cyreal's `next` over 1e4 samples, inside jit: its fastest form.

Its state is a permutation, which it copies for every sample.
"""

from functools import partial

import jax
from cyreal.loader import DataLoader
from cyreal.sources import ArraySource
from cyreal.transforms import BatchTransform

from dataset import BATCH
from workloads.scaling.workload import Stepper, rows_of, stepper_of

STEPS = 20


def stepper(size: int) -> Stepper:
    """The steps of a loader over the rows, copied to the device."""
    source = ArraySource({"row": jax.device_put(rows_of(size))}, ordering="shuffle")
    loader = DataLoader(
        pipeline=[source, BatchTransform(batch_size=BATCH, pad_last_batch=True)]
    )
    return stepper_of(loader, loader.next, jax.random.PRNGKey(0), STEPS)


build = partial(stepper, 10**4)
