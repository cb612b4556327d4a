"""Millstream's `DatasetSource` over the same data set, with the default thread.

Millstream needs at least one worker thread. Each epoch continues from the
state of the last one, because a new seed would discard the prefetched batches.
"""

from collections.abc import Iterator
from typing import Any

import millstream as ms

from dataset import BATCH
from torch_images import Images
from workloads.torch_dataset.workload import Loop, masked


def loop_of(source: ms.DatasetSource) -> Loop:
    """The loop over `iterate`; each epoch continues from the last one's state."""
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH)])
    state = loader.init_state(0)

    def epoch() -> Iterator[Any]:
        nonlocal state
        batches = loader.iterate(state)
        yield from batches
        state = batches.state

    return Loop(epoch, masked)


def build(images: Images) -> Loop:
    """The loop with one thread."""
    return loop_of(ms.DatasetSource(images))
