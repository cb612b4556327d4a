"""Grain's MapDataset, its batches made ahead in processes."""

from collections.abc import Iterator

import grain
import numpy as np
from absl.flags import FLAGS

from dataset import BATCH
from functions import WORKERS
from workloads.host_loop.grain_map import READ
from workloads.python_gil.workload import Function, Stream


def build(function: Function, length: int) -> Stream:
    """The stream of NumPy arrays, put on the device."""

    if not FLAGS.is_parsed():
        FLAGS.mark_as_parsed()  # its processes want to be told all of them

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
