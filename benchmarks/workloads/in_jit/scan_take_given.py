"""By hand: a scan over `jnp.take`, with one permutation made in advance.

The arrays are arguments and are not returned, so that XLA does not copy them;
`mode="clip"` avoids a check of the indices. Every epoch has the same order.
"""

from typing import Any

import jax
import jax.numpy as jnp

from dataset import BATCH, Arrays
from workloads.in_jit.workload import Body, Epoch


def scan_taken(arrays: Any, order: jax.Array, carry: Any, body: Body) -> Any:
    """The carry and outputs of the body over whole batches in the order given."""

    def step(carry, chosen):
        image, label = (
            jnp.take(array, chosen, axis=0, mode="clip") for array in arrays
        )
        return body(carry, image, label, None)

    steps = len(order) // BATCH
    return jax.lax.scan(step, carry, order[: steps * BATCH].reshape(steps, BATCH))


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of whole batches in one permutation."""
    arrays = jax.device_put((data.image, data.label))
    order = jax.random.permutation(jax.random.PRNGKey(0), len(data))
    scanned = jax.jit(
        lambda arrays, order, carry: scan_taken(arrays, order, carry, body)
    )

    def epoch(state, carry):
        return state, *scanned(*state, carry)

    return Epoch(epoch, (arrays, order))
