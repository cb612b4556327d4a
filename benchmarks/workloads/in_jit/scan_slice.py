"""Scans slices of the arrays in the order of the source.

Includes every byte of the batch and the step. Does not include a shuffle.
"""

import jax
import jax.numpy as jnp

from dataset import BATCH, Arrays
from workloads.in_jit.workload import Body, Epoch


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of whole batches, not shuffled."""
    starts = jnp.arange(len(data) // BATCH) * BATCH

    @jax.jit
    def scanned(arrays, carry):
        def step(carry, start):
            image, label = (
                jax.lax.dynamic_slice_in_dim(array, start, BATCH) for array in arrays
            )
            return body(carry, image, label, None)

        return jax.lax.scan(step, carry, starts)

    def epoch(arrays, carry):
        return arrays, *scanned(arrays, carry)

    return Epoch(epoch, jax.device_put((data.image, data.label)), shuffled=False)
