"""Samples of 4 MiB: what handing them over costs beside a memcpy of their bytes.

The function writes into the memory that becomes the batch. Its own time is that of two
processes which do nothing else, in memory of the same kind; what a loader takes beyond
it is the hand-over.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from statistics import median
from types import ModuleType
from typing import Any

import jax
import numpy as np

from functions import BLOCK
from harness import Measurement, WrongAnswer
from workloads.python_gil.workload import seconds_of_window

LENGTH = 256
ROWS = 8
SLOTS = 6
WINDOW = 20
COUNT = 40


@dataclass(frozen=True)
class Blocks:
    """What a contender builds: `batches()` of `ROWS` blocks of one sample each.

    One with `seconds()` times windows itself; it yields no batches beyond the first
    `LENGTH` samples.
    """

    batches: Callable[[], Iterator[Any]]
    seconds: Callable[[], list[float]] | None = None
    reaches_jax: bool = True
    shuffled: bool = True


def numbers(batch: Any, *, reaches_jax: bool) -> list[int]:
    """The numbers of the samples of a batch, each of one value throughout."""
    if reaches_jax and not isinstance(batch, jax.Array):
        raise WrongAnswer("batches that are not JAX arrays")
    blocks = np.asarray(batch)
    if blocks.shape != (ROWS, BLOCK) or blocks.dtype != np.uint8:
        raise WrongAnswer(f"batches of {blocks.dtype}{list(blocks.shape)}")
    if np.any(blocks.min(axis=1) != blocks.max(axis=1)):
        raise WrongAnswer("blocks that are written in part")
    return blocks[:, 0].tolist()


def measure(contender: ModuleType) -> list[Measurement]:
    """Checks an epoch of the contender, then times windows; seconds are of a batch."""
    made = contender.build()
    with closing(made.batches()) as batches:
        seen: list[int] = []
        for batch in islice(batches, LENGTH // ROWS):
            seen += numbers(batch, reaches_jax=made.reaches_jax)
        if sorted(seen) != list(range(LENGTH)):
            raise WrongAnswer(f"{len(set(seen))} different samples of {LENGTH}")
        if made.shuffled and seen == sorted(seen):
            raise WrongAnswer("samples in the order of the source")
        if made.seconds is not None:
            seconds = median(made.seconds())
        else:
            seconds = seconds_of_window(lambda item: item, batches, WINDOW, COUNT)
    return [Measurement(ROWS, [seconds / WINDOW])]
