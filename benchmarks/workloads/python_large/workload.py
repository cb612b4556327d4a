"""Samples of 4 MiB that a Python function writes into the memory of the batch.

`function_alone` is the time of the function in two processes that do nothing else. Any
further time of a loader is the cost of delivering the batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any

import jax
import numpy as np

from functions import BLOCK
from harness import Task, WrongAnswer

LENGTH = 256
ROWS = 8
SLOTS = 6
WINDOW = 20
AHEAD = 10


@dataclass(frozen=True)
class Blocks:
    """What a contender builds: `batches()` yields batches of `ROWS` blocks.

    A block is one sample. A contender with `window()` makes the batches of a round with
    that, and yields only the first `LENGTH` samples.
    """

    batches: Callable[[], Iterator[Any]]
    window: Callable[[], Any] | None = None
    reaches_jax: bool = True
    shuffled: bool = True


def numbers(batch: Any, *, reaches_jax: bool) -> list[int]:
    """The numbers of a batch's samples. Checks that each block has one value."""
    if reaches_jax and not isinstance(batch, jax.Array):
        raise WrongAnswer("batches that are not JAX arrays")
    blocks = np.asarray(batch)
    if blocks.shape != (ROWS, BLOCK) or blocks.dtype != np.uint8:
        raise WrongAnswer(f"batches of {blocks.dtype}{list(blocks.shape)}")
    if np.any(blocks.min(axis=1) != blocks.max(axis=1)):
        raise WrongAnswer("blocks that are only partly written")
    return blocks[:, 0].tolist()


def prepare(contender: ModuleType) -> Task:
    """Checks an epoch of the contender. A round takes the next `WINDOW` batches."""
    made: Blocks = contender.build()
    batches = made.batches()
    seen: list[int] = []
    for batch in islice(batches, LENGTH // ROWS):
        seen += numbers(batch, reaches_jax=made.reaches_jax)
    if sorted(seen) != list(range(LENGTH)):
        raise WrongAnswer(f"{len(set(seen))} different samples of {LENGTH}")
    if made.shuffled and seen == sorted(seen):
        raise WrongAnswer("samples in the order of the source")
    if made.window is not None:
        return Task(WINDOW, made.window, close=batches.close)

    def take(count: int) -> None:
        for _ in range(count):
            batch = next(batches)
        jax.block_until_ready(batch)

    return Task(
        WINDOW,
        run=lambda: take(WINDOW),
        before=lambda: take(AHEAD),
        close=batches.close,
    )
