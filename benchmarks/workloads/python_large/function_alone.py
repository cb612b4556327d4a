"""Two processes call the function on shared memory.

Includes two messages per round. Does not include a message for each batch or passing
the batches to JAX.
"""

from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory

import numpy as np

from functions import BLOCK, WORKERS, serve_fills
from workloads.python_large.workload import LENGTH, ROWS, SLOTS, WINDOW, Blocks

SHARE = ROWS // WORKERS


def build() -> Blocks:
    """The first batches come one by one for the check. A round is one request."""
    context = get_context("spawn")
    memory = SharedMemory(create=True, size=SLOTS * ROWS * BLOCK)
    slots = np.ndarray((SLOTS, ROWS, BLOCK), np.uint8, memory.buf)
    pipes = [context.Pipe() for _ in range(WORKERS)]

    def asked(first: int, batches: int) -> None:
        for place, (connection, _) in enumerate(pipes):
            connection.send((first, batches, place * SHARE))
        for connection, _ in pipes:
            connection.recv()

    def batches() -> Iterator[np.ndarray]:
        nonlocal slots
        processes = [
            context.Process(target=serve_fills, args=(end, memory.name, slots.shape))
            for _, end in pipes
        ]
        for process in processes:
            process.start()
        try:
            for number in range(LENGTH // ROWS):
                asked(number, 1)
                yield slots[number % SLOTS]
            raise AssertionError("`window` makes all further batches")
        finally:
            for process in processes:
                process.kill()
                process.join()
            del slots
            memory.close()
            memory.unlink()

    return Blocks(batches, lambda: asked(0, WINDOW), reaches_jax=False, shuffled=False)
