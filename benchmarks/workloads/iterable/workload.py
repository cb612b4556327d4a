"""A generator of small samples, in a Python loop with a jitted step."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

import streams
from harness import Task, WrongAnswer

ROWS = 128 * 500
BATCH = 128
TABLE = np.arange(ROWS, dtype=np.float32)[:, None] + np.arange(16, dtype=np.float32)


def samples() -> Iterator[dict[str, Any]]:
    """The samples: 16 floats and an int."""
    for number in range(ROWS):
        yield {"x": TABLE[number], "y": number}


def numbers(batch: Any) -> np.ndarray:
    """The ints of a batch; raises if its floats belong to other samples."""
    x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
    if x.dtype != np.float32 or not np.array_equal(x, TABLE[y]):
        raise WrongAnswer("floats of other samples than their ints")
    return y


def step(carry: Any, batch: Any) -> Any:
    """The minimal training step."""
    return carry + batch["y"][0] + batch["x"][0, 0].astype(np.int32)


QUESTION = streams.Question(
    ROWS, BATCH, numbers, step, checked=2 * ROWS // BATCH, round=1000
)


def prepare(contender: ModuleType) -> Task:
    """Checks two epochs of the contender."""
    return streams.prepare(contender.build(), QUESTION)
