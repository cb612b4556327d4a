"""A full fifo buffer of 1e6 transitions, of which each step draws 256."""

from types import ModuleType

import replay
from harness import Task


def prepare(contender: ModuleType) -> Task:
    """Checks and times a buffer inside one jitted scan."""
    return replay.prepare(contender, 10**6, "fifo", steps=2000)
