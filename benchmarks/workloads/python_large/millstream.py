"""Millstream's `fill_source`: its worker processes write into the batch's memory.

`clear=False` because the function writes every byte.
"""

from collections.abc import Iterator

import jax
import millstream as ms
import numpy as np

from functions import BLOCK, WORKERS, fill_block
from workloads.python_gil.millstream import ENDLESS
from workloads.python_large.workload import LENGTH, ROWS, Blocks


def build() -> Blocks:
    """The batches of `iterate` across epochs."""

    def batches() -> Iterator[jax.Array]:
        source = ms.fill_source(
            fill_block,
            range(LENGTH),
            {"block": jax.ShapeDtypeStruct((BLOCK,), np.uint8)},
            workers=WORKERS,
            worker_kind="process",
            clear=False,
        )
        loader = ms.DataLoader(
            pipeline=[source, ms.BatchTransform(batch_size=ROWS)], prefetch=4
        )
        for batch, _ in loader.iterate(loader.init_state(0), steps=ENDLESS):
            yield batch["block"]

    return Blocks(batches)
