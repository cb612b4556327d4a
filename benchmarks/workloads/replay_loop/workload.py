"""A replay buffer in a Python loop that passes each batch to a jitted step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any

import jax
import numpy as np

import replay
from harness import Task, WrongAnswer

STEPS = 2000
CAPACITY = 10**6


@dataclass(frozen=True)
class Loop:
    """What a contender builds: a state with an empty buffer, and a loop from a state.

    `filled` is that of `replay.Replay`. `batches(state)` yields batches without end.
    """

    state: Any
    filled: Callable[[Any, Callable[[Any], Any]], Any]
    batches: Callable[[Any], Iterator[Any]]


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches. A round runs the next ones."""
    capacity = getattr(contender, "CAPACITY", CAPACITY)
    loop: Loop = contender.build(capacity)
    start = replay.start(replay.Replay(loop.state, replay.total, loop.filled), capacity)
    batches = loop.batches(start)
    for numbers in replay.expected(capacity, "fifo"):
        batch, wanted = next(batches), replay.transition(numbers)
        for name, found in batch.items():
            if not np.array_equal(found, wanted[name]):
                raise WrongAnswer(f"{name} differs from the reference")
    step = jax.jit(lambda carry, batch: carry + replay.total(batch))

    def run() -> None:
        carry = np.float32(0)
        for batch in islice(batches, STEPS):
            carry = step(carry, batch)
        jax.block_until_ready(carry)

    return Task(STEPS, run)
