"""A table of 20 columns in memory. Each batch is a dict for a jitted step."""

from types import ModuleType
from typing import Any

import numpy as np

import streams
from harness import Task, WrongAnswer
from streams import Question

ROWS, COLUMNS = 10_000_000, 20
BATCH = 4096
STRIDE = 477_101
NAMES = [f"column_{number:02}" for number in range(COLUMNS)]


def table() -> dict[str, np.ndarray]:
    """Column k of row i is (i + k * STRIDE) modulo ROWS, exact in float32."""
    first = np.arange(ROWS, dtype=np.float32)
    return {name: np.roll(first, -k * STRIDE) for k, name in enumerate(NAMES)}


def numbers(batch: Any) -> np.ndarray:
    """The numbers of a batch's rows. Checks every column."""
    if list(batch) != NAMES:
        raise WrongAnswer(f"a batch of {', '.join(batch)}")
    columns = [np.asarray(batch[name]) for name in NAMES]
    if any(column.dtype != np.float32 for column in columns):
        raise WrongAnswer("columns that are not float32")
    first = columns[0].astype(np.int64)
    for k, column in enumerate(columns):
        if not np.array_equal(column, (first + k * STRIDE) % ROWS):
            raise WrongAnswer("columns that do not belong to the same row")
    return first


def step(carry: Any, batch: Any) -> Any:
    """The minimal training step: it receives all columns."""
    return carry + sum(column[0] for column in batch.values()).astype(np.int32)


QUESTION = Question(ROWS, BATCH, numbers, step, checked=64, round=300)


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches of the contender. A round is a part of the epoch."""
    return streams.prepare(contender.build(table()), QUESTION)
