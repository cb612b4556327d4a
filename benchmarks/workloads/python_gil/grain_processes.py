"""Grain's `mp_prefetch` over batches: each worker process makes whole batches.

The read options start no threads in a worker, where they would compete for its GIL; the
batches travel in shared memory.
"""

from collections.abc import Iterator

import grain
import numpy as np
from absl.flags import FLAGS

from dataset import BATCH
from functions import WORKERS
from workloads.python_gil.workload import Function, Stream

READ = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def build(function: Function, length: int) -> Stream:
    """The stream of NumPy arrays."""
    if not FLAGS.is_parsed():
        FLAGS.mark_as_parsed()  # Grain reads absl flags when it starts a process

    def batches() -> Iterator[np.ndarray]:
        samples = grain.MapDataset.range(length).shuffle(seed=0).repeat().map(function)
        options = grain.MultiprocessingOptions(
            num_workers=WORKERS, per_worker_buffer_size=4
        )
        ahead = samples.batch(BATCH).to_iter_dataset(READ).mp_prefetch(options)
        iterator = iter(ahead)
        try:
            yield from iterator
        finally:
            iterator.close()

    return Stream(batches)
