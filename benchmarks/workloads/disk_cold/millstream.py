"""Millstream's `scan_epoch` inside jit over an `NpySource`.

Every option has its default value.
"""

from pathlib import Path
from typing import Any

import millstream as ms

from workloads.disk_cold.workload import BATCH, Epoch, compute, initial, scan_of


def loader_of(source: Any) -> ms.DataLoader:
    """The loader that every Millstream contender here uses."""
    return ms.DataLoader(pipeline=[source, ms.BatchTransform(batch_size=BATCH)])


def build(path: Path) -> Epoch:
    """The epoch of Millstream's loader in one jit."""
    return scan_of(loader_of(ms.NpySource(path)), initial(), compute)
