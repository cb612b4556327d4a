"""A full reservoir buffer of 1e6 transitions, of which each step draws 256."""

from types import ModuleType

import replay
from harness import Task

STEPS = 5000
CYREAL_STEPS = 200  # it copies the buffer in each step


def prepare(contender: ModuleType) -> Task:
    """Checks and times a buffer inside one jitted scan."""
    slow = contender.__name__.endswith("cyreal")
    steps = CYREAL_STEPS if slow else STEPS
    return replay.prepare(contender, 10**6, "reservoir", steps=steps)
