"""Copies the bytes of a batch from one reused array to another, in one thread.

Does not include the function or passing the batch to JAX.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from functions import BLOCK
from workloads.python_large.workload import LENGTH, ROWS, SLOTS, Blocks


def build() -> Blocks:
    """The batches, each a copy of another one."""
    slots = np.zeros((SLOTS, ROWS, BLOCK), np.uint8)

    def batches() -> Iterator[np.ndarray]:
        source = np.empty((ROWS, BLOCK), np.uint8)
        for first in range(0, LENGTH, ROWS):
            source[:] = np.arange(first, first + ROWS)[:, None]
            np.copyto(slots[0], source)
            yield slots[0]
        for number in count():
            np.copyto(slots[(number + 1) % SLOTS], slots[number % SLOTS])
            yield slots[(number + 1) % SLOTS]

    return Blocks(batches, reaches_jax=False, shuffled=False)
