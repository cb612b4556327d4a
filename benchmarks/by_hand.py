"""Loops over the rows of one array, written with NumPy only."""

from collections.abc import Callable, Iterator

import numpy as np

from streams import permuted


def epochs(source: np.ndarray, batch: int) -> Callable[[], Iterator[np.ndarray]]:
    """Epochs of shuffled batches, each gathered by `np.take` into a new array."""
    orders = permuted(len(source), batch)
    plain = np.asarray(source)
    shape = batch, *plain.shape[1:]

    def epoch() -> Iterator[np.ndarray]:
        for chosen in orders():
            taken = np.empty(shape, plain.dtype)
            yield np.take(plain, chosen, axis=0, out=taken, mode="clip")

    return epoch


def copied(source: np.ndarray, batch: int) -> Callable[[], Iterator[np.ndarray]]:
    """Epochs of batches in order, all copied into one reused array."""
    plain = np.asarray(source)
    reused = np.empty((batch, *plain.shape[1:]), plain.dtype)

    def epoch() -> Iterator[np.ndarray]:
        for first in range(0, len(plain) - batch + 1, batch):
            np.copyto(reused, plain[first : first + batch])
            yield reused

    return epoch
