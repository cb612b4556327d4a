"""By hand: `jax.random.permutation` in each epoch and `jnp.take` for each minibatch."""

from typing import Any

import jax
import jax.numpy as jnp

from workloads.ppo_minibatches.workload import BATCH, EPOCHS, ROWS, Body, Minibatches


def minibatches(data: Any, key: Any, carry: Any, body: Body) -> tuple[Any, Any]:
    """Epochs of permutations."""

    def step(carry: Any, chosen: Any) -> tuple[Any, Any]:
        batch = jax.tree.map(lambda x: jnp.take(x, chosen, 0, mode="clip"), data)
        return body(carry, batch)

    def epoch(carry: Any, key: Any) -> tuple[Any, Any]:
        order = jax.random.permutation(key, ROWS).reshape(-1, BATCH)
        return jax.lax.scan(step, carry, order)

    return jax.lax.scan(epoch, carry, jax.random.split(key, EPOCHS))


def build() -> Minibatches:
    """The function."""
    return minibatches
