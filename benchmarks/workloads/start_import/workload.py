"""The time of a whole process that only imports the contender's packages."""

from types import ModuleType

from harness import Task
from launch import launched


def prepare(contender: ModuleType) -> Task:
    """Starts one process as a check. A round is one process."""
    launched(contender.__name__)
    return Task(1, lambda: launched(contender.__name__))
