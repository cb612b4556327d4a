"""`millstream.loadax` over the same data set, with one worker thread.

`Batcher.stack` lets the worker write samples directly into the arrays of a batch.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from millstream.loadax import Batcher, DataLoader, ShuffledDataset

from dataset import BATCH
from torch_images import Images
from workloads.torch_dataset.workload import Loop


def build(images: Images) -> Loop:
    """The loop over batches of NumPy arrays. Each epoch has another order."""
    builder = DataLoader(Batcher.stack()).batch_size(BATCH).prefetch(8)
    loader = builder.build(ShuffledDataset(images, 0))
    numbers = count()

    def epoch() -> Iterator[Any]:
        return iter(loader.at_epoch(next(numbers)))

    return Loop(epoch, lambda batch: (*batch, None))
