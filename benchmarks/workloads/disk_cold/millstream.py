"""Millstream's scan_epoch inside jit."""

from pathlib import Path
from typing import Any

import millstream as ms
import numpy as np

from workloads.disk_cold.workload import (
    BATCH,
    ROWS,
    WORDS,
    Epoch,
    compute,
    initial,
    rows_of,
    scan_of,
)


def loader_of(source: Any) -> ms.DataLoader:
    """The loader that every Millstream contender here uses."""
    return ms.DataLoader(pipeline=[source, ms.BatchTransform(batch_size=BATCH)])


def without_file() -> ms.DataLoader:
    """The loader of as many rows, all of them the first."""
    rows = np.broadcast_to(rows_of(np.arange(1)), (ROWS, WORDS))
    return loader_of(ms.ArraySampleSource(rows, ordering="shuffle"))


def build(path: Path) -> Epoch:
    """The epoch of Millstream's loader in one jit."""
    alone = scan_of(without_file(), initial(), compute)
    return scan_of(loader_of(ms.NpySource(path)), initial(), compute, alone)
