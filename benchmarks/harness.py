"""What every workload shares: the task to time, the clocks, the check of answers."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dataset import BATCH, SCALE, Arrays

WEIGHTS = np.random.default_rng(0).integers(2**32, size=784, dtype=np.uint32) | 1
LABEL_WEIGHT = np.uint32(2654435761)


class WrongAnswer(Exception):
    """A contender whose answers are wrong is not timed."""


def nothing(*_: Any) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Task:
    """What a workload prepares of a contender: `run()` is one round of it.

    `before` is called before each round and `after` with what `run` returned; neither
    is timed. `close` ends what the contender started. `extra` holds other numbers of
    the contender, by their column's name.
    """

    samples: int
    run: Callable[[], Any]
    before: Callable[[], Any] = nothing
    after: Callable[[Any], Any] = nothing
    close: Callable[[], Any] = nothing
    extra: dict[str, float] = field(default_factory=dict)

    def round(self) -> dict[str, float]:
        """Runs a round and returns its seconds on the wall and of the CPU."""
        self.before()
        gc.collect()
        below = children_seconds()
        own, start = time.process_time(), time.perf_counter()
        result = self.run()
        seconds, own = time.perf_counter() - start, time.process_time() - own
        below = children_seconds() - below
        self.after(result)
        return {"seconds": seconds, "cpu": own + below}


def children(process: int) -> Iterator[int]:
    """The processes that a process started and that still run, and theirs."""
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found = [int(child) for child in tasks.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in found:
            yield child
            yield from children(child)


def children_seconds() -> float:
    """The CPU time of the processes that this one started.

    A process that has ended counts as soon as it was waited for.
    """
    ended = os.times()
    total = ended.children_user + ended.children_system
    for child in children(os.getpid()):
        try:
            total += time.clock_gettime(~child << 3 | 2)  # clock_getcpuclockid(3)
        except OSError:  # it has ended
            continue
    return total


def fingerprints(image: Any, label: Any) -> Any:
    """One uint32 a row of NumPy or JAX arrays, by which rows are recognised."""
    flat = image.reshape(image.shape[0], -1).astype(np.uint32)
    return (flat * WEIGHTS).sum(axis=1, dtype=np.uint32) + (
        label.astype(np.uint32) * LABEL_WEIGHT
    )


def as_pixels(image: np.ndarray) -> np.ndarray:
    """Normalised images as the uint8 they came from; refuses any other values."""
    if image.dtype != np.float32:
        raise WrongAnswer(f"normalised images are {image.dtype}, not float32")
    pixels = np.rint(image * 255)
    if not np.allclose(image, pixels * SCALE, rtol=0, atol=1e-6):
        raise WrongAnswer("normalised values differ from pixel / 255")
    return pixels.astype(np.uint8)


def check_once(
    seen: np.ndarray, data: Arrays, *, complete: bool = True, shuffled: bool = True
) -> None:
    """Passes if the rows of fingerprints `seen` are an epoch of `data`.

    An epoch holds every record once; its incomplete last batch may be dropped.
    A part of an epoch (`complete=False`) holds no record twice.
    """
    source = fingerprints(data.image, data.label)
    rest = len(source) % BATCH
    if complete and len(seen) not in (len(source), len(source) - rest):
        raise WrongAnswer(f"{len(seen)} records instead of {len(source)}")
    known, available = np.unique(source, return_counts=True)
    found, used = np.unique(seen, return_counts=True)
    place = np.searchsorted(known, found).clip(max=len(known) - 1)
    if not np.array_equal(known[place], found):
        raise WrongAnswer("records that are not in the dataset")
    if np.any(used > available[place]):
        raise WrongAnswer("records that come twice")
    if shuffled and np.array_equal(seen[:BATCH], source[:BATCH]):
        raise WrongAnswer("records in the order of the source instead of shuffled")
