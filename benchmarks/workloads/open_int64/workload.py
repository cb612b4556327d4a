"""A loader over int64 labels of 1e8 rows: built, and asked for its first batch."""

import gc
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import BATCH
from harness import Task, WrongAnswer

ROWS = 10**8
FACTOR, OFFSET = 7, 3  # row i holds 7 * i + 3: that fits in int32
LOOKED_AT = 64  # batches

Build = Callable[[np.ndarray, int], Iterator[Any]]
"""What a contender is: from the labels and a seed to batches of labels, shuffled."""


@jax.jit
def step(label: Any) -> Any:
    """The least that a training step does: it receives the batch."""
    return label[0]


@jax.jit
def received(label: Any) -> Any:
    """The batch as the step receives it."""
    return label


def labels() -> np.ndarray:
    """The labels in memory, 800 MB."""
    made = np.arange(ROWS, dtype=np.int64)
    made *= FACTOR
    made += OFFSET
    return made


def check(batches: Iterator[Any]) -> None:
    """Passes if the first batches hold shuffled rows, and none of them twice."""
    kept = [received(batch) for batch in islice(batches, LOOKED_AT)]
    if any(batch.dtype != np.int32 or batch.shape != (BATCH,) for batch in kept):
        raise WrongAnswer(f"batches of {kept[0].dtype}{list(kept[0].shape)}")
    seen = np.concatenate(kept).astype(np.int64)
    row, rest = np.divmod(seen - OFFSET, FACTOR)
    if rest.any() or row.min() < 0 or row.max() >= ROWS:
        raise WrongAnswer("labels that are not in the data")
    if len(np.unique(row)) != LOOKED_AT * BATCH:
        raise WrongAnswer("rows that come twice")
    if np.ptp(row[:BATCH]) < ROWS // 2:
        raise WrongAnswer("rows that are close to each other instead of shuffled")


def status(name: str) -> float:
    """A number of MiB that the system knows of this process, such as `VmRSS`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) / 1024


def growth(function: Callable[[], Any]) -> float:
    """By how many MiB the memory of this process grows at most during a call."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, VmHWM
    before = status("VmRSS")
    function()
    return max(status("VmHWM") - before, 0)


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches. A round builds one loader."""
    data = labels()
    build: Build = contender.build
    seeds = count()
    check(build(data, next(seeds)))
    jax.block_until_ready(step(np.zeros(BATCH, np.int32)))  # compiled

    def start() -> None:
        jax.block_until_ready(step(next(build(data, next(seeds)))))

    return Task(1, start, extra={"RSS growth, MiB": growth(start)})
