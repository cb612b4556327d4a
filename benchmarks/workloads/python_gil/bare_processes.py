"""Two processes receive indices and send back batches through two pipes.

The process with the fewest pending messages gets the next one. Includes the function
and the order of the batches. Does not include passing the batches to JAX.
"""

from collections import deque
from collections.abc import Iterator
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

import numpy as np

from dataset import BATCH
from functions import ROWS, WORKERS, serve_rows, shuffled
from workloads.python_gil.workload import Function, Stream

AHEAD = 4


def build(function: Function, length: int) -> Stream:
    """The stream of NumPy arrays, one message per batch, not passed to JAX."""

    def batches() -> Iterator[np.ndarray]:
        context = get_context("spawn")
        pipes = [context.Pipe() for _ in range(WORKERS)]
        processes = [
            context.Process(target=serve_rows, args=(end, function)) for _, end in pipes
        ]
        for process in processes:
            process.start()
        indices = enumerate(shuffled(length))
        asked = {connection: deque() for connection, _ in pipes}
        answers = {}

        def ask(connection: Connection) -> None:
            number, chosen = next(indices)
            connection.send_bytes(chosen)
            asked[connection].append(number)

        try:
            for connection in list(asked) * AHEAD:
                ask(connection)
            for number in count():
                while number not in answers:
                    for connection in wait(asked):
                        batch = np.empty((BATCH, ROWS.shape[1]), np.uint8)
                        connection.recv_bytes_into(batch.ravel())
                        answers[asked[connection].popleft()] = batch
                yield answers.pop(number)
                ask(min(asked, key=lambda each: len(asked[each])))
        finally:
            for process in processes:
                process.kill()
                process.join()

    return Stream(batches, reaches_jax=False)
