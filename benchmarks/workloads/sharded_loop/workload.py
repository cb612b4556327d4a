"""Batches of 8 MiB in a Python loop, in a process with eight CPU devices."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import numpy as np

from harness import Task, WrongAnswer

ROW = 1 << 16
BATCH = 128
RECORDS = 1024
EPOCHS = 8


@dataclass(frozen=True)
class Loop:
    """What a contender builds: `epochs(n)` yields the batches of n epochs.

    `devices` is the number of devices that hold rows of each batch.
    """

    epochs: Callable[[int], Iterable[jax.Array]]
    devices: int


def records() -> np.ndarray:
    """Rows of random bytes. The first four bytes are the row's number."""
    made = np.random.default_rng(0).integers(0, 256, (RECORDS, ROW), dtype=np.uint8)
    made[:, :4] = np.arange(RECORDS, dtype=np.uint32)[:, None].view(np.uint8)
    return made


def check(loop: Loop, source: np.ndarray) -> None:
    """Raises unless an epoch has every record once, on `loop.devices` devices."""
    batches = list(loop.epochs(1))
    held = {len(batch.sharding.device_set) for batch in batches}
    if held != {loop.devices}:
        raise WrongAnswer(f"batches are on {held} devices, not {loop.devices}")
    seen = np.concatenate([np.asarray(batch) for batch in batches])
    numbers = np.ascontiguousarray(seen[:, :4]).view(np.uint32).ravel()
    if not np.array_equal(np.sort(numbers), np.arange(RECORDS)):
        raise WrongAnswer(f"{len(numbers)} records, but not every one once")
    if not np.array_equal(seen, source[numbers]):
        raise WrongAnswer("records with other bytes than the source's")


def prepare(contender: ModuleType) -> Task:
    """Checks an epoch of the contender. A round is a few epochs."""
    source = records()
    loop = contender.build(source)
    check(loop, source)

    def run() -> Any:
        (last,) = deque(loop.epochs(EPOCHS), maxlen=1)
        return jax.block_until_ready(last)

    return Task(EPOCHS * RECORDS, run)
