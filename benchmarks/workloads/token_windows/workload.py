"""Shuffled windows of 2,048 tokens of a memory-mapped file, given to a jitted step.

The file is in the page cache. The windows do not overlap, so that the check can count
them. Batches are uint16, like the file; a real step would cast them.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import streams
from files import FACTOR, INVERSE, PIECE, made_once, warm
from harness import Task, WrongAnswer
from streams import Question

TOKENS, WINDOW = 2**28, 2048
WINDOWS = TOKENS // WINDOW
BATCH = 16
PAIRS = WINDOW // 2


def words_of(pairs: np.ndarray) -> np.ndarray:
    """Two tokens as one uint32: pair p of the file is p * FACTOR."""
    return pairs.astype(np.uint32) * FACTOR


def file() -> Path:
    """The file of uint16 tokens, 512 MiB."""

    def write(path: Path) -> None:
        with open(path, "wb") as file:
            for first in range(0, TOKENS // 2, PIECE):
                words_of(np.arange(first, first + PIECE)).tofile(file)

    return made_once(f"tokens-{TOKENS}.uint16", write)


def mapped(path: Path) -> np.ndarray:
    """The tokens of the file as a memory map."""
    return np.memmap(path, np.uint16, mode="r")


def numbers(batch: Any) -> np.ndarray:
    """The numbers of a batch's windows. Checks every token."""
    tokens = np.ascontiguousarray(batch)
    if tokens.shape != (BATCH, WINDOW) or tokens.dtype != np.uint16:
        raise WrongAnswer(f"a batch that is {tokens.dtype}{list(tokens.shape)}")
    words = tokens.view(np.uint32)
    first = (words[:, 0] * INVERSE).astype(np.int64)
    if not np.array_equal(words, words_of(first[:, None] + np.arange(PAIRS))):
        raise WrongAnswer("tokens that do not follow each other in the file")
    if np.any(first % PAIRS):
        raise WrongAnswer("windows that do not begin at a multiple of 2,048")
    return first // PAIRS


def step(carry: Any, batch: Any) -> Any:
    """The minimal training step: it receives the tokens."""
    return carry + batch[0, 0].astype(np.int32)


QUESTION = Question(
    WINDOWS, BATCH, numbers, step, checked=1024, round=4000, unit=WINDOW
)


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches of the contender. A round is a part of the epoch."""
    path = file()
    warm(path)
    return streams.prepare(contender.build(path), QUESTION)
