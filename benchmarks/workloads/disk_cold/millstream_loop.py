"""Millstream's `iterate` around a jitted step, over an `NpySource`."""

from pathlib import Path

import millstream as ms

from workloads.disk_cold.millstream import loader_of
from workloads.disk_cold.workload import Epoch, loop_of


def build(path: Path) -> Epoch:
    """The epoch of `iterate`."""
    loader = loader_of(ms.NpySource(path))
    state = loader.init_state(0)
    return loop_of(lambda: (batch for batch, _ in loader.iterate(state)))
