"""jax-dataloader with its own backend over an `ArrayDataset` of the 20 columns.

This backend indexes all arrays with a whole batch; the others work row by row.
"""

import jax_dataloader as jdl
import numpy as np

from streams import Stream
from workloads.table.workload import BATCH


def build(table: dict[str, np.ndarray]) -> Stream:
    """The stream of dicts; the loader itself yields tuples."""
    loader = jdl.DataLoader(
        jdl.ArrayDataset(*table.values()),
        "jax",
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
    )
    names = tuple(table)
    return Stream(lambda: (dict(zip(names, batch, strict=True)) for batch in loader))
