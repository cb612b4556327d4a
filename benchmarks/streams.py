"""Workloads that time a fixed number of batches per round.

An epoch can span several rounds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import jax
import numpy as np

from harness import Task, WrongAnswer

LATE = 8  # how many more batches are made before a batch is checked


@dataclass(frozen=True)
class Stream:
    """What a contender builds: `epoch()` yields the whole batches of an epoch.

    A limit may leave out passing batches to JAX (`reaches_jax=False`) and shuffling.
    """

    epoch: Callable[[], Iterable[Any]]
    reaches_jax: bool = True
    shuffled: bool = True


@dataclass(frozen=True)
class Question:
    """A workload: its size, its step, and how to identify rows.

    `numbers` checks the content of a batch and returns the numbers of its rows.
    `step(carry, batch)` returns an int32 carry, so that each step depends on the one
    before, as in training. The first `checked` batches are checked. A row counts as
    `unit` samples.
    """

    rows: int
    batch: int
    numbers: Callable[[Any], np.ndarray]
    step: Callable[[Any, Any], Any]
    checked: int
    round: int
    unit: int = 1


@jax.jit
def received(batch: Any) -> Any:
    """Returns the batch as a jitted step receives it."""
    return batch


def endless(stream: Stream) -> Iterator[Any]:
    """The batches of all epochs, without end."""
    while True:
        yield from stream.epoch()


def delayed(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields each batch only after `LATE` more have been made.

    So a check fails if the contender overwrites memory that JAX still uses.
    """
    held: deque[Any] = deque()
    for batch in batches:
        held.append(received(batch))
        if len(held) > LATE:
            yield held.popleft()
    yield from held


def check(stream: Stream, batches: Iterator[Any], question: Question) -> None:
    """Raises unless the first batches have correct, shuffled rows, none twice."""
    some: Iterable[Any] = islice(batches, question.checked)
    if stream.reaches_jax:
        some = delayed(some)
    seen = [question.numbers(batch) for batch in some]
    if any(numbers.shape != (question.batch,) for numbers in seen):
        raise WrongAnswer(f"a batch that does not have {question.batch} rows")
    per_epoch = question.rows // question.batch
    starts = range(0, len(seen), per_epoch)
    epochs = [seen[first : first + per_epoch] for first in starts]
    for epoch in epochs:
        numbers = np.concatenate(epoch)
        if numbers.min() < 0 or numbers.max() >= question.rows:
            raise WrongAnswer("rows that are not in the data")
        if len(np.unique(numbers)) != len(numbers):
            raise WrongAnswer("rows that come twice")
        if stream.shuffled:
            check_shuffled(epoch[0], question.rows)
    first, *others = [epoch[0] for epoch in epochs]
    if stream.shuffled and any(np.array_equal(first, other) for other in others):
        raise WrongAnswer("two epochs in the same order")


def check_shuffled(numbers: np.ndarray, rows: int) -> None:
    """Raises unless a batch's rows come from all over the data, in random order."""
    if np.ptp(numbers) < rows // 2 or np.all(np.diff(numbers) > 0):
        raise WrongAnswer("rows that are not shuffled over the whole data")


def prepare(stream: Stream, question: Question) -> Task:
    """Checks the first batches of the contender. A round runs the next ones.

    A contender that prefetches has a few batches ready at the start of a round, and as
    many at its end.
    """
    batches = endless(stream)
    check(stream, batches, question)
    step = jax.jit(question.step)

    def run() -> None:
        carry = np.int32(0)
        if stream.reaches_jax:
            for batch in islice(batches, question.round):
                carry = step(carry, batch)
        else:
            for _ in islice(batches, question.round):
                pass
        jax.block_until_ready(carry)

    return Task(question.round * question.batch * question.unit, run)


def permuted(rows: int, batch: int) -> Callable[[], Iterator[np.ndarray]]:
    """Epochs of row numbers in whole batches, with a new permutation for each."""
    generator = np.random.default_rng(0)

    def epoch() -> Iterator[np.ndarray]:
        order = generator.permutation(rows)
        for first in range(0, rows - batch + 1, batch):
            yield order[first : first + batch]

    return epoch
