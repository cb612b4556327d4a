"""Millstream's scan_epoch over one row in memory: the time of computing."""

from pathlib import Path

import millstream as ms
import numpy as np

from workloads.disk_cold.millstream import loader_of
from workloads.disk_cold.workload import (
    ROWS,
    WORDS,
    Epoch,
    compute,
    initial,
    rows_of,
    scan_of,
)


def build(path: Path) -> Epoch:
    """The epoch of as many rows, without a file."""
    rows = np.broadcast_to(rows_of(np.arange(1)), (ROWS, WORDS))
    source = ms.ArraySampleSource(rows, ordering="shuffle")
    more = {"is_cold": False, "is_data": False}
    return scan_of(loader_of(source), initial(), compute, **more)
