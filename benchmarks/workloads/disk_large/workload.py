"""Shuffled rows of a 6 GiB file in the page cache, given to a jitted step.

The file is far larger than the processor's caches and smaller than the memory.
"""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import streams
from files import numbers_of, rows_file, rows_of, warm
from harness import Task, WrongAnswer
from streams import Question

ROWS, WORDS = 6 * 2**16, 2**12
BATCH = 64


def mapped(path: Path) -> np.ndarray:
    """The rows of the file as a memory map."""
    return np.load(path, mmap_mode="r")


def numbers(batch: Any) -> np.ndarray:
    """The numbers of a batch's rows. Checks every word of them."""
    rows = np.asarray(batch)
    if rows.shape != (BATCH, WORDS) or rows.dtype != np.uint32:
        raise WrongAnswer(f"a batch that is {rows.dtype}{list(rows.shape)}")
    found = numbers_of(rows)
    if not np.array_equal(rows, rows_of(found, WORDS)):
        raise WrongAnswer("rows with words that are not in the file")
    return found


def step(carry: Any, batch: Any) -> Any:
    """The minimal training step: it receives the rows."""
    return carry + batch[0, 0].astype(np.int32)


QUESTION = Question(ROWS, BATCH, numbers, step, checked=256, round=1500)


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches of the contender. A round is a quarter of the epoch.

    Before each round, pages that the kernel has evicted are read again.
    """
    path = rows_file(ROWS, WORDS)
    warm(path)
    task = streams.prepare(contender.build(path), QUESTION)
    return replace(task, before=lambda: warm(path))
