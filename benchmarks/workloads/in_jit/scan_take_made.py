"""By hand: a scan over `jnp.take`, with a new permutation made inside each epoch.

Only the key and the carry are returned, so that XLA does not copy the arrays.
"""

import jax

from dataset import Arrays
from workloads.in_jit.scan_take_given import scan_taken
from workloads.in_jit.workload import Body, Epoch


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of whole batches, with a new permutation for each epoch."""
    arrays = jax.device_put((data.image, data.label))

    @jax.jit
    def scanned(arrays, key, carry):
        key, now = jax.random.split(key)
        order = jax.random.permutation(now, len(data))
        return key, *scan_taken(arrays, order, carry, body)

    def epoch(key, carry):
        return scanned(arrays, key, carry)

    return Epoch(epoch, jax.random.PRNGKey(0))
