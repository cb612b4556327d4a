"""The time to build a loader over 1e8 int64 labels and get its first batch."""

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
FACTOR, OFFSET = 7, 3  # row i is 7 * i + 3, which fits in int32
CHECKED = 64  # batches

Build = Callable[[np.ndarray, int], Iterator[Any]]
"""What a contender defines: makes shuffled batches from the labels and a seed."""


@jax.jit
def step(label: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return label[0]


@jax.jit
def received(label: Any) -> Any:
    """Returns the batch as the step receives it."""
    return label


def labels() -> np.ndarray:
    """The labels in memory, 800 MB."""
    made = np.arange(ROWS, dtype=np.int64)
    made *= FACTOR
    made += OFFSET
    return made


def check(batches: Iterator[Any]) -> None:
    """Raises unless the first batches have shuffled rows, none of them twice."""
    found = [received(batch) for batch in islice(batches, CHECKED)]
    if any(batch.dtype != np.int32 or batch.shape != (BATCH,) for batch in found):
        raise WrongAnswer(f"batches of {found[0].dtype}{list(found[0].shape)}")
    seen = np.concatenate(found).astype(np.int64)
    row, rest = np.divmod(seen - OFFSET, FACTOR)
    if rest.any() or row.min() < 0 or row.max() >= ROWS:
        raise WrongAnswer("labels that are not in the data")
    if len(np.unique(row)) != CHECKED * BATCH:
        raise WrongAnswer("rows that come twice")
    if np.ptp(row[:BATCH]) < ROWS // 2:
        raise WrongAnswer("rows that are close to each other instead of shuffled")


def status(name: str) -> float:
    """A size from /proc/self/status in MiB, such as `VmRSS`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) / 1024


def growth(function: Callable[[], Any]) -> float:
    """The peak growth of this process's memory during a call, in MiB."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, VmHWM
    before = status("VmRSS")
    function()
    return max(status("VmHWM") - before, 0)


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches. A round builds one loader and gets one batch."""
    data = labels()
    build: Build = contender.build
    seeds = count()
    check(build(data, next(seeds)))
    jax.block_until_ready(step(np.zeros(BATCH, np.int32)))  # compiles the step

    def start() -> None:
        jax.block_until_ready(step(next(build(data, next(seeds)))))

    return Task(1, start, extra={"RSS growth, MiB": growth(start)})
