"""Samples that a Python function makes in two workers, in a millisecond each.

The stream of batches is endless. Before a round, the batches that the contender made
while it was idle are taken and not timed. A round has an even number of batches,
because two workers that make whole batches deliver them in pairs.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import BATCH, Arrays
from functions import ROWS, held_row
from harness import Task, WrongAnswer, check_once, fingerprints

Function = Callable[[int], np.ndarray]


@dataclass(frozen=True)
class Stream:
    """What a contender builds: `batches()`, an endless generator of batches.

    A limit may leave out passing batches to JAX (`reaches_jax=False`). A contender that
    deadlocks if batches are kept (`keeps=False`) is checked batch by batch. It makes at
    most `ahead` batches ahead.
    """

    batches: Callable[[], Iterator[Any]]
    reaches_jax: bool = True
    keeps: bool = True
    ahead: int = 24


@jax.jit
def step(batch: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return batch[0, 0]


def rows(batch: Any) -> np.ndarray:
    """The fingerprints of the rows of a batch."""
    batch = np.asarray(batch)
    if batch.shape != (BATCH, ROWS.shape[1]) or batch.dtype != np.uint8:
        raise WrongAnswer(f"batches of {batch.dtype}{list(batch.shape)}")
    return fingerprints(batch, np.zeros(BATCH, np.int32))


def checked_one_by_one(batches: Iterator[Any]) -> Iterator[np.ndarray]:
    """The fingerprints of batches, each released before the next is taken."""
    for batch in batches:
        seen = rows(batch)
        del batch
        gc.collect()  # makes JAX release the array's memory now
        yield seen


def check(stream: Stream, batches: Iterator[Any], length: int) -> None:
    """Raises unless the next batches are an epoch of the function's rows."""
    received = jax.jit(lambda batch: batch) if stream.reaches_jax else np.array
    epoch = islice(batches, length // BATCH)
    if stream.keeps:
        seen = [rows(batch) for batch in [received(batch) for batch in epoch]]
    else:
        seen = list(checked_one_by_one(epoch))
    data = Arrays(ROWS[:length], np.zeros(length, np.int32))
    check_once(np.concatenate(seen), data)


def prepare(
    contender: ModuleType,
    function: Function = held_row,
    *,
    length: int = 1024,
    window: int = 24,
) -> Task:
    """Checks an epoch of the contender. A round takes the next `window` batches."""
    stream: Stream = contender.build(function, length)
    batches = stream.batches()
    check(stream, batches, length)

    def take(count: int) -> None:
        for _ in range(count):
            received = step(next(batches)) if stream.reaches_jax else next(batches)
        jax.block_until_ready(received)

    return Task(
        window * BATCH,
        run=lambda: take(window),
        before=lambda: take(stream.ahead),
        close=batches.close,
    )
