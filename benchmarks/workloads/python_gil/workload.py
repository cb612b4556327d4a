"""Samples that a Python function makes in two workers, a millisecond each.

The stream of batches never ends and is never left alone, so that nothing made ahead
while nobody asked is counted. Times are those of an even number of batches: workers
that make whole batches in turn deliver them in pairs.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from statistics import median
from time import perf_counter
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import BATCH, Arrays
from functions import ROWS, held_row
from harness import Measurement, WrongAnswer, check_once, fingerprints

Function = Callable[[int], np.ndarray]
ENOUGH = 5.0


def itself(item: Any) -> Any:
    """An item that is the batch, or needs no delivery."""
    return item


@dataclass(frozen=True)
class Stream:
    """What a contender builds: `batches()`, a generator of batches without end.

    `deliver` makes JAX arrays of them. A limit may stop short of JAX. A contender that
    waits for ever for batches that are kept (`keeps=False`) is looked at one by one.
    """

    batches: Callable[[], Iterator[Any]]
    deliver: Callable[[Any], Any] = jax.device_put
    reaches_jax: bool = True
    keeps: bool = True


def rows(stream: Stream, batch: Any) -> np.ndarray:
    """The fingerprints of the rows of a delivered batch."""
    if stream.reaches_jax and not isinstance(batch, jax.Array):
        raise WrongAnswer("batches that are not JAX arrays")
    batch = np.asarray(batch)
    if batch.shape != (BATCH, ROWS.shape[1]) or batch.dtype != np.uint8:
        raise WrongAnswer(f"batches of {batch.dtype}{list(batch.shape)}")
    return fingerprints(batch, np.zeros(BATCH, np.int32))


def looked_at(stream: Stream, delivered: Iterator[Any]) -> Iterator[np.ndarray]:
    """The fingerprints of batches that are let go one by one."""
    for batch in delivered:
        seen = rows(stream, batch)
        del batch
        gc.collect()  # JAX lets go of an array's memory late
        yield seen


def check(stream: Stream, batches: Iterator[Any], length: int) -> None:
    """Passes if the first batches are an epoch of the function's rows."""
    delivered = map(stream.deliver, islice(batches, length // BATCH))
    if stream.keeps:
        seen = [rows(stream, batch) for batch in list(delivered)]
    else:
        seen = list(looked_at(stream, delivered))
    data = Arrays(ROWS[:length], np.zeros(length, np.int32))
    check_once(np.concatenate(seen), data)


def seconds_of_window(
    deliver: Callable[[Any], Any], batches: Iterator[Any], window: int, count: int
) -> float:
    """The seconds of a window of batches: the median of so many in a row.

    Not the best of them: after a delay come batches that were made meanwhile, in no
    time. The first two are left out, and the slow run fewer.
    """
    times: list[float] = []
    while len(times) < 5 or (len(times) < count + 2 and sum(times) < ENOUGH):
        start = perf_counter()
        for _ in range(window):
            delivered = None  # or hydrax might wait for it
            delivered = deliver(next(batches))
        jax.block_until_ready(delivered)
        del delivered
        times.append(perf_counter() - start)
    return median(times[2:])


def measure(
    contender: ModuleType,
    function: Function = held_row,
    *,
    length: int = 1024,
    window: int = 8,
    count: int = 9,
) -> list[Measurement]:
    """Checks an epoch of the contender, then times windows of its batches."""
    stream = contender.build(function, length)
    with closing(stream.batches()) as batches:
        check(stream, batches, length)
    with closing(stream.batches()) as batches:  # another: looking may hold batches
        seconds = seconds_of_window(stream.deliver, batches, window, count)
    return [Measurement(window * BATCH, [seconds])]
