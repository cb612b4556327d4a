"""`millstream.loadax` with two worker threads.

`Batcher.stack` lets the workers write samples directly into the arrays of a batch.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np
from millstream.loadax import Batcher, DataLoader, ShuffledDataset

from dataset import BATCH
from functions import WORKERS
from workloads.python_gil.workload import Function, Stream


class Samples:
    """A data set whose samples the function makes."""

    def __init__(self, function: Function, length: int) -> None:
        self.function, self.length = function, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> np.ndarray:
        return self.function(index)


def build(function: Function, length: int) -> Stream:
    """The stream of the batches of all epochs, each in another order."""
    builder = DataLoader(Batcher.stack()).batch_size(BATCH).workers(WORKERS).prefetch(8)
    loader = builder.build(ShuffledDataset(Samples(function, length), 0))

    def batches() -> Iterator[np.ndarray]:
        for epoch in count():
            yield from loader.at_epoch(epoch)

    return Stream(batches)
