"""A step inside jit, the state and its start, as the number of samples grows.

The samples are one row seen N times without memory behind them, so what grows is
the work of the order alone.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dataset import BATCH
from harness import Measurement, WrongAnswer, seconds_of

SIZES = (10**4, 10**6, 10**8, 10**9)
STEPS = 200
ROW = np.arange(64, dtype=np.uint8)


@dataclass(frozen=True)
class Stepper:
    """What a contender builds: `init()` makes a state, `step` a batch, mask and state.

    `constants` are arrays that `step(state, constants)` reads; they are no state.
    """

    init: Callable[[], Any]
    step: Callable[[Any, Any], tuple[Any, Any, Any]]
    constants: Any = None


def stepper_of(loader: Any, following: Callable[[Any], Any], key: Any) -> Stepper:
    """The stepper of a loader of `{"row": ...}`, whatever it calls its next batch."""

    def step(state: Any, constants: Any) -> tuple[Any, Any, Any]:
        batch, state, mask = following(state)
        return batch["row"], mask, state

    return Stepper(lambda: loader.init_state(key), step)


def run_of(stepper: Stepper, steps: int) -> Callable[[Any], Any]:
    """A jitted scan: the sum of the rows, the count of the valid, and the state."""

    @jax.jit
    def run(state: Any, constants: Any) -> Any:
        def body(carry: Any, _: None) -> tuple[Any, None]:
            total, count, state = carry
            row, mask, state = stepper.step(state, constants)
            total += jnp.sum(row, dtype=jnp.uint32)
            return (total, count + jnp.sum(mask, dtype=jnp.uint32), state), None

        start = jnp.uint32(0), jnp.uint32(0), state
        return jax.lax.scan(body, start, length=steps)[0]

    return lambda state: jax.block_until_ready(run(state, stepper.constants))


def best_init(stepper: Stepper) -> float:
    """The seconds of the fastest of a few starts, the compiling one left out."""
    jax.block_until_ready(stepper.init())

    def timed() -> Iterator[float]:
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(stepper.init())
            yield time.perf_counter() - start

    return min(timed())


def measured(stepper: Stepper, size: int, most: int) -> Measurement:
    """Checks and times at most so many steps of one size."""
    steps = min(most, size // BATCH)
    run = run_of(stepper, steps)
    state = stepper.init()
    total, count, _ = run(state)
    if int(count) != steps * BATCH or int(total) != int(count) * int(ROW.sum()):
        raise WrongAnswer(f"{int(count)} rows of sum {int(total)} at N = {size:.0e}")
    leaves = jax.tree.leaves(state)
    return Measurement(
        BATCH,
        [seconds / steps for seconds in seconds_of(lambda: run(state))],
        f"N = {size:.0e}".replace("e+0", "e"),
        {
            "state_bytes": sum(np.asarray(leaf).nbytes for leaf in leaves),
            "init_seconds": best_init(stepper),
        },
    )


def measure(contender: ModuleType) -> list[Measurement]:
    """The measurements of every size up to the contender's `LARGEST`.

    A contender too slow for `STEPS` steps names a number of its own.
    """
    most = getattr(contender, "STEPS", STEPS)
    return [
        measured(contender.build(np.broadcast_to(ROW, (size, ROW.size))), size, most)
        for size in SIZES
        if size <= contender.LARGEST
    ]
