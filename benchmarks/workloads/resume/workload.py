"""A loader of 1e9 shuffled samples: built, given a state, and its first batch had."""

from collections.abc import Callable
from types import ModuleType

import jax
import numpy as np

from dataset import BATCH
from harness import Measurement, WrongAnswer, seconds_of

SAMPLES = 10**9
ROW = np.arange(64, dtype=np.uint8)

First = Callable[[np.ndarray], tuple[int, jax.Array]]
"""What a contender is: from the rows to the step of a batch, and the batch."""


def measure(contender: ModuleType) -> list[Measurement]:
    """The time to the first batch, the compiling one left out."""
    rows = np.broadcast_to(ROW, (SAMPLES, ROW.size))
    first: First = contender.first_batch
    step, batch = first(rows)
    if step != contender.STEP:
        raise WrongAnswer(f"the batch of step {step}, not {contender.STEP}")
    if not np.array_equal(np.asarray(batch), np.tile(ROW, (BATCH, 1))):
        raise WrongAnswer("a batch with other bytes than the source's")
    seconds = seconds_of(lambda: jax.block_until_ready(first(rows)[1]), least=20)
    return [Measurement(1, seconds)]
