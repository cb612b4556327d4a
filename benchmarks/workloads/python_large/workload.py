"""Samples of 4 MiB: what handing them over costs beside a memcpy of their bytes.

The function writes into the memory that becomes the batch. Its own time is that of two
processes which do nothing else, in memory of the same kind; what a loader takes beyond
it is the hand-over. The two take turns within one process, window by window: on a
shared machine what is measured a minute later may differ by more than the hand-over.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from statistics import median
from types import ModuleType
from typing import Any

import jax
import numpy as np

from catalogue import BEYOND
from functions import BLOCK
from harness import Measurement, WrongAnswer

LENGTH = 256
ROWS = 8
SLOTS = 6
WINDOW = 20
COUNT = 40

# Made ahead of a loader that rests, and how long until it does rest.
AHEAD = 10
REST = 0.03


@dataclass(frozen=True)
class Blocks:
    """What a contender builds: `batches()` of `ROWS` blocks of one sample each.

    One with `window()` times its windows itself; it yields no batches beyond the first
    `LENGTH` samples.
    """

    batches: Callable[[], Iterator[Any]]
    window: Callable[[], float] | None = None
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
        if made.window is not None:
            made.window()
            return measured([made.window() for _ in range(COUNT)])
        if not made.reaches_jax:
            return measured([next_window(batches) for _ in range(COUNT)])
        return in_turns(batches)


def measured(windows: list[float], variant: str = "") -> list[Measurement]:
    """The seconds of a batch by those of windows."""
    return [Measurement(ROWS, [median(windows) / WINDOW], variant)]


def next_window(batches: Iterator[Any]) -> float:
    """The seconds of the next window, and nothing that was made before it."""
    for _ in islice(batches, AHEAD):
        pass
    start = time.perf_counter()
    for _ in range(WINDOW):
        batch = next(batches)
    jax.block_until_ready(batch)
    return time.perf_counter() - start


def in_turns(batches: Iterator[Any]) -> list[Measurement]:
    """Windows of a loader, and what each takes beyond one of the function alone."""
    from workloads.python_large import function_alone

    alone = function_alone.build()
    assert alone.window is not None
    windows, beyond = [], []
    with closing(alone.batches()) as started:
        next(started)
        for _ in range(COUNT):
            time.sleep(REST)
            function = alone.window()
            windows.append(next_window(batches))
            beyond.append(windows[-1] - function)
    return measured(windows) + measured(beyond, BEYOND)
