"""Millstream's host loop around a jitted step."""

from pathlib import Path

import millstream as ms

from workloads.disk_cold.millstream import loader_of, without_file
from workloads.disk_cold.workload import Epoch, loop_of


def epoch_of(loader: ms.DataLoader, alone: Epoch | None = None) -> Epoch:
    """The epoch of `iterate`."""
    state = loader.init_state(0)
    return loop_of(lambda: (batch for batch, _ in loader.iterate(state)), alone)


def build(path: Path) -> Epoch:
    """The epoch of the loop."""
    return epoch_of(loader_of(ms.NpySource(path)), epoch_of(without_file()))
