"""The Python functions that worker processes import.

The module needs only NumPy, so that worker processes start quickly.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from dataset import BATCH

WORKERS = 2
ROWS = np.random.default_rng(0).integers(256, size=(1 << 14, 784), dtype=np.uint8)
HELD = 0.001
SHORTLY_HELD = 0.00002
BLOCK = 4 << 20


def row(index: int) -> np.ndarray:
    """The 784 bytes of a sample, without any computation."""
    return ROWS[index]


def held_row(index: int) -> np.ndarray:
    """The same after a millisecond of this thread's CPU time, with the GIL held.

    It does not use wall time. Time in which the loader takes the CPU from this thread
    would count as work of the function, and the loader would seem to cost nothing.
    """
    hold(HELD)
    return ROWS[index]


def shortly_held_row(index: int) -> np.ndarray:
    """The same after 20 microseconds."""
    hold(SHORTLY_HELD)
    return ROWS[index]


def hold(seconds: float) -> None:
    """Uses the CPU with the GIL held."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def fill_block(index: int, arrays: Mapping[str, np.ndarray], seed: int | None) -> None:
    """Fills 4 MiB with the number of the sample."""
    arrays["block"].fill(index)


def rows_of(function: Callable[[int], np.ndarray], indices: Any) -> np.ndarray:
    """A batch of the rows that the function returns."""
    batch = np.empty((len(indices), ROWS.shape[1]), np.uint8)
    for k, index in enumerate(indices):
        batch[k] = function(index)
    return batch


def shuffled(length: int) -> Iterator[np.ndarray]:
    """Endless batches of indices, in another order in each epoch."""
    generator = np.random.default_rng(0)
    while True:
        yield from generator.permutation(length).reshape(-1, BATCH)


def serve_rows(connection: Connection, function: Callable[[int], np.ndarray]) -> None:
    """Receives batches of indices and sends their rows, until an empty message."""
    while indices := connection.recv_bytes():
        numbers = np.frombuffer(indices, np.int64).tolist()
        connection.send_bytes(rows_of(function, numbers).ravel())


def serve_fills(connection: Connection, name: str, shape: tuple[int, int, int]) -> None:
    """Fills this worker's rows of the requested batches, then sends a reply."""
    memory = SharedMemory(name)
    slots = np.ndarray(shape, np.uint8, memory.buf)
    share = shape[1] // WORKERS
    while True:
        first, batches, place = connection.recv()
        for number in range(first, first + batches):
            for k in range(place, place + share):
                arrays = {"block": slots[number % shape[0], k]}
                fill_block((number * shape[1] + k) % 256, arrays, None)
        connection.send(None)
