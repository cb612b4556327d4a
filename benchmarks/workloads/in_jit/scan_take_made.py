"""By hand: a scan over `jnp.take`, another permutation made inside each epoch."""

import jax

from dataset import Arrays
from workloads.in_jit.scan_take_given import scan_taken
from workloads.in_jit.workload import Body, Epoch


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of whole batches in a permutation of its own."""

    @jax.jit
    def epoch(state, carry):
        arrays, key = state
        key, now = jax.random.split(key)
        order = jax.random.permutation(now, len(data))
        return (arrays, key), *scan_taken(arrays, order, carry, body)

    arrays = jax.device_put((data.image, data.label))
    return Epoch(epoch, (arrays, jax.random.PRNGKey(0)))
