"""Cyreal's own `iterate`, a few batches of an epoch: it takes seconds a batch."""

import jax

from dataset import Arrays
from workloads.host_loop.cyreal_next import loader_of
from workloads.host_loop.workload import Loop, masked_fields

STEPS = 2


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over the first batches of `iterate`."""
    loader = loader_of(data, normalize=normalize)
    state = loader.init_state(jax.random.PRNGKey(0))
    return Loop(
        lambda: loader.iterate(state, steps=STEPS),
        masked_fields,
        deliver=None,
        complete=False,
    )
