"""Runs the same step over one row in memory, as many times as the file has rows.

Includes Millstream's loader and the step inside jit. Does not include reading the file.
"""

from pathlib import Path

import millstream as ms
import numpy as np

from files import rows_of
from workloads.disk_cold.millstream import loader_of
from workloads.disk_cold.workload import (
    ROWS,
    WORDS,
    Epoch,
    compute,
    initial,
    scan_of,
)


def build(path: Path) -> Epoch:
    """An epoch that computes but does not read the file."""
    rows = np.broadcast_to(rows_of(np.arange(1), WORDS), (ROWS, WORDS))
    source = ms.ArraySampleSource(rows, ordering="shuffle")
    return scan_of(loader_of(source), initial(), compute, reads=False)
