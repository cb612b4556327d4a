"""The time to build a loader of 1e9 shuffled samples, restore it and get a batch."""

from collections.abc import Callable
from types import ModuleType

import jax
import numpy as np

from dataset import BATCH
from harness import Task, WrongAnswer

SAMPLES = 10**9
STARTS = 20
ROW = np.arange(64, dtype=np.uint8)

First = Callable[[np.ndarray], tuple[int, jax.Array]]
"""What a contender defines: returns the step of a batch of the rows, and the batch."""


def prepare(contender: ModuleType) -> Task:
    """Checks the first batch. A round builds and restores several loaders."""
    rows = np.broadcast_to(ROW, (SAMPLES, ROW.size))
    first: First = contender.first_batch
    step, batch = first(rows)
    if step != contender.STEP:
        raise WrongAnswer(f"the batch of step {step}, not {contender.STEP}")
    if not np.array_equal(np.asarray(batch), np.tile(ROW, (BATCH, 1))):
        raise WrongAnswer("a batch with other bytes than the source's")

    def run() -> None:
        for _ in range(STARTS):
            jax.block_until_ready(first(rows)[1])

    return Task(STARTS, run)
