"""Time from building a loader with two worker processes to its first batch.

This process has imported JAX and the contender's packages before.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from dataset import BATCH
from harness import Task, WrongAnswer

Close = Callable[[], Any]


def check(batch: Any) -> None:
    """Raises unless the batch has different samples of `started.numbered`."""
    rows = np.asarray(batch)
    if rows.shape != (BATCH, 16) or rows.dtype != np.int32:
        raise WrongAnswer(f"a batch of {rows.dtype}{list(rows.shape)}")
    if len(np.unique(rows[:, 0])) != BATCH or (rows != rows[:, :1]).any():
        raise WrongAnswer("other samples than those of the function")


def prepare(contender: ModuleType) -> Task:
    """A round starts the workers; they end after it."""
    first_batch: Callable[[], tuple[Any, Close]] = contender.first_batch

    def after(result: tuple[Any, Close]) -> None:
        batch, close = result
        check(batch)
        close()

    after(first_batch())
    return Task(1, first_batch, after=after)
