"""Code that every workload uses: the task to time, the clocks, and the checks."""

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
    """A contender's batches are wrong, so it is not timed."""


def nothing(*_: Any) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Task:
    """A contender that is ready to be timed: `run()` runs one round.

    `before()` runs before each round, and `after(result)` gets what `run` returned;
    neither is timed. `close` ends the contender's processes. `extra` holds further
    numbers by the name of their column.
    """

    samples: int
    run: Callable[[], Any]
    before: Callable[[], Any] = nothing
    after: Callable[[Any], Any] = nothing
    close: Callable[[], Any] = nothing
    extra: dict[str, float] = field(default_factory=dict)

    def round(self) -> dict[str, float]:
        """Runs a round and returns its wall time and CPU time in seconds."""
        self.before()
        gc.collect()
        others = children_seconds()
        own, start = time.process_time(), time.perf_counter()
        result = self.run()
        seconds, own = time.perf_counter() - start, time.process_time() - own
        others = children_seconds() - others
        self.after(result)
        return {"seconds": seconds, "cpu": own + others}


def children(process: int) -> Iterator[int]:
    """The running child processes of a process, and their children."""
    for tasks in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found = [int(child) for child in tasks.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in found:
            yield child
            yield from children(child)


def children_seconds() -> float:
    """The CPU time of this process's children.

    A child that has ended counts once this process has waited for it.
    """
    ended = os.times()
    total = ended.children_user + ended.children_system
    for child in children(os.getpid()):
        try:
            total += time.clock_gettime(~child << 3 | 2)  # clock_getcpuclockid(3)
        except OSError:  # the child has ended
            continue
    return total


def fingerprints(image: Any, label: Any) -> Any:
    """A hash (uint32) of each row of NumPy or JAX arrays, to identify the row."""
    flat = image.reshape(image.shape[0], -1).astype(np.uint32)
    return (flat * WEIGHTS).sum(axis=1, dtype=np.uint32) + (
        label.astype(np.uint32) * LABEL_WEIGHT
    )


def as_pixels(image: np.ndarray) -> np.ndarray:
    """Normalised images as uint8; raises if they are not pixel / 255."""
    if image.dtype != np.float32:
        raise WrongAnswer(f"normalised images are {image.dtype}, not float32")
    pixels = np.rint(image * 255)
    if not np.allclose(image, pixels * SCALE, rtol=0, atol=1e-6):
        raise WrongAnswer("normalised values differ from pixel / 255")
    return pixels.astype(np.uint8)


def check_once(
    seen: np.ndarray, data: Arrays, *, complete: bool = True, shuffled: bool = True
) -> None:
    """Raises unless the fingerprints `seen` are those of an epoch of `data`.

    An epoch has every record once; its incomplete last batch may be missing. With
    `complete=False` it may be a part of an epoch, which has no record twice.
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
