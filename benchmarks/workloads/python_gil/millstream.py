"""Millstream's `DiskSampleSource` with two worker processes.

Every other option has its default value.
"""

from collections.abc import Iterator

import jax
import millstream as ms

from dataset import BATCH
from functions import WORKERS
from workloads.python_gil.workload import Function, Stream

ENDLESS = 10**9


def build(
    function: Function,
    length: int,
    *,
    worker_kind: str = "process",
    workers: int = WORKERS,
) -> Stream:
    """The stream of `iterate` across epochs."""

    def batches() -> Iterator[jax.Array]:
        source = ms.DiskSampleSource(
            length, function, workers=workers, worker_kind=worker_kind
        )
        loader = ms.DataLoader(pipeline=[source, ms.BatchTransform(batch_size=BATCH)])
        try:
            for batch, _ in loader.iterate(loader.init_state(0), steps=ENDLESS):
                yield batch
        finally:
            source.close()

    return Stream(batches)
