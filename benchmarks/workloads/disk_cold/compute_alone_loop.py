"""Millstream's host loop over one row in memory: the time of computing in a loop."""

from dataclasses import replace
from pathlib import Path

import millstream as ms
import numpy as np

from workloads.disk_cold.millstream import loader_of
from workloads.disk_cold.workload import ROWS, WORDS, Epoch, loop_of, rows_of


def build(path: Path) -> Epoch:
    """The epoch of as many rows, without a file."""
    rows = np.broadcast_to(rows_of(np.arange(1)), (ROWS, WORDS))
    loader = loader_of(ms.ArraySampleSource(rows, ordering="shuffle"))
    state = loader.init_state(0)
    epoch = loop_of(lambda: (batch for batch, _ in loader.iterate(state)))
    return replace(epoch, is_cold=False, is_data=False)
