"""The time of a step inside jit and the size of the state, for N samples.

All N samples share the memory of one row, so only the cost of the order depends on N.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dataset import BATCH
from harness import Task, WrongAnswer

STEPS = 200
ROW = np.arange(64, dtype=np.uint8)


@dataclass(frozen=True)
class Stepper:
    """What a contender builds: `init()` makes a state, `step` a batch, mask and state.

    `step(state, constants)` also reads the arrays in `constants`, which do not count as
    state. A contender that is too slow for `STEPS` steps sets a smaller number.
    """

    init: Callable[[], Any]
    step: Callable[[Any, Any], tuple[Any, Any, Any]]
    constants: Any = None
    steps: int = STEPS


def rows_of(size: int) -> np.ndarray:
    """`size` rows that share their memory."""
    return np.broadcast_to(ROW, (size, ROW.size))


def stepper_of(
    loader: Any, following: Callable[[Any], Any], key: Any, steps: int = STEPS
) -> Stepper:
    """The stepper of a loader of `{"row": ...}`; `following` returns the next batch."""

    def step(state: Any, constants: Any) -> tuple[Any, Any, Any]:
        batch, state, mask = following(state)
        return batch["row"], mask, state

    return Stepper(lambda: loader.init_state(key), step, steps=steps)


def run_of(stepper: Stepper) -> Callable[[Any], Any]:
    """A jitted scan: the sum of the rows and the count of the valid ones."""

    @jax.jit
    def run(state: Any, constants: Any) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            total, count, state = carry
            row, mask, state = stepper.step(state, constants)
            total += jnp.sum(row, dtype=jnp.uint32)
            return (total, count + jnp.sum(mask, dtype=jnp.uint32), state), None

        start = jnp.uint32(0), jnp.uint32(0), state
        (total, count, _), _ = jax.lax.scan(body, start, length=stepper.steps)
        return total, count

    return lambda state: jax.block_until_ready(run(state, stepper.constants))


def prepare(contender: ModuleType) -> Task:
    """Checks the sum and the count of some steps."""
    stepper: Stepper = contender.build()
    run = run_of(stepper)
    state = stepper.init()
    total, count = run(state)
    if int(count) != stepper.steps * BATCH or int(total) != int(count) * ROW.sum():
        raise WrongAnswer(f"{int(count)} rows with the sum {int(total)}")
    size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(state))
    return Task(stepper.steps, lambda: run(state), extra={"state, bytes": size})
