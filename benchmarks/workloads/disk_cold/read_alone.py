"""Millstream's `scan_epoch` with a step that looks at two words of each row.

Includes reading the whole file in shuffled order. Does not include the expensive step.
"""

from pathlib import Path

import jax.numpy as jnp
import millstream as ms

from workloads.disk_cold.millstream import loader_of
from workloads.disk_cold.workload import Epoch, glance, scan_of

BODY = glance


def build(path: Path) -> Epoch:
    """The epoch of Millstream's loader in one jit."""
    return scan_of(loader_of(ms.NpySource(path)), jnp.uint32(0), glance)
