"""By hand: `jnp.take` of 1e4 rows by a permutation that is the state."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dataset import BATCH
from workloads.scaling.workload import Stepper, rows_of


def stepper(size: int, steps: int) -> Stepper:
    """The steps over rows on the device, in the order of a permutation."""

    @jax.jit
    def init() -> Any:
        return jnp.int32(0), jax.random.permutation(jax.random.PRNGKey(0), size)

    def step(state: Any, rows: jax.Array) -> tuple[Any, Any, Any]:
        start, order = state
        chosen = jax.lax.dynamic_slice_in_dim(order, start, BATCH)
        row = jnp.take(rows, chosen, axis=0, mode="clip")
        return row, jnp.ones(BATCH, bool), (start + BATCH, order)

    return Stepper(init, step, jax.device_put(rows_of(size)), steps)


build = partial(stepper, 10**4, 78)
