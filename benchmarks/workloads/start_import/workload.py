"""A whole process that imports what a contender names, and ends."""

from types import ModuleType

from harness import Task
from launch import launched


def prepare(contender: ModuleType) -> Task:
    """A round is a process."""
    launched(contender.__name__)
    return Task(1, lambda: launched(contender.__name__))
