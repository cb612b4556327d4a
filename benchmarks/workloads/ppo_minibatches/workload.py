"""Shuffled minibatches of a rollout inside one jitted function, as PPO needs them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness import Task, WrongAnswer
from replay import total, transition

ROWS = 8192
BATCH = 256
EPOCHS = 4
CALLS = 50  # per round

Body = Callable[[Any, Any], tuple[Any, Any]]
Minibatches = Callable[[Any, Any, Any, Body], tuple[Any, Any]]
"""What a contender builds: a function of data, a key, a carry and a body.

It runs the body over all minibatches of `EPOCHS` epochs, and returns the carry and the
outputs of the body, whose leading axes are epochs and minibatches.
"""


def prepare(contender: ModuleType) -> Task:
    """Checks that each epoch has every row once, in another random order."""
    minibatches: Minibatches = contender.build()
    data = jax.jit(transition)(jnp.arange(ROWS))

    @jax.jit
    def seen(data: Any, key: Any) -> Any:
        return minibatches(data, key, 0, lambda carry, batch: (carry, batch))[1]

    batches = jax.tree.map(np.asarray, seen(data, jax.random.PRNGKey(0)))
    numbers = batches["reward"].astype(np.int32)
    if numbers.shape != (EPOCHS, ROWS // BATCH, BATCH):
        raise WrongAnswer(f"minibatches of the shape {numbers.shape}")
    for name, wanted in transition(numbers).items():
        if not np.array_equal(batches[name], wanted):
            raise WrongAnswer(f"{name} of other rows than the reward")
    orders = numbers.reshape(EPOCHS, ROWS)
    if not np.array_equal(np.sort(orders), np.tile(np.arange(ROWS), (EPOCHS, 1))):
        raise WrongAnswer("an epoch that does not have every row once")
    if len(np.unique(np.vstack([orders, np.arange(ROWS)]), axis=0)) != EPOCHS + 1:
        raise WrongAnswer("epochs in the same order, or not shuffled")

    @jax.jit
    def run(data: Any, key: Any) -> Any:
        def add(carry: Any, batch: Any) -> tuple[Any, None]:
            return carry + total(batch), None

        return minibatches(data, key, jnp.float32(0), add)[0]

    keys = jax.random.split(jax.random.PRNGKey(1), CALLS)

    def round() -> None:
        for key in keys:
            jax.block_until_ready(run(data, key))

    return Task(CALLS * EPOCHS * ROWS, round)
