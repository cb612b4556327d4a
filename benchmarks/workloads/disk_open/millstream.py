"""Millstream's `NpySource`, which checks the header and maps the file."""

from typing import Any

import millstream as ms
import numpy as np

from workloads.disk_open.workload import Opener


def row(source: Any, index: int) -> np.ndarray:
    """One row, by way of a loader."""
    chosen = ms.Subset(source, range(index, index + 1), "sequential")
    loader = ms.DataLoader(pipeline=[chosen, ms.BatchTransform(batch_size=1)])
    batch, _ = next(iter(loader.iterate(loader.init_state(0))))
    return np.asarray(batch)[0]


OPENER = Opener(ms.NpySource, lambda source: source.num_samples, row)
