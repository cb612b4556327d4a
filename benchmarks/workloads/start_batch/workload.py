"""The time of a whole process that imports JAX and makes the first batch.

The batch is from 1e8 shuffled records.
"""

from types import ModuleType

from harness import Task, WrongAnswer
from launch import BATCH, launched

CHECKED = 10**5
RECORDS = 10**8


def prepare(contender: ModuleType) -> Task:
    """Checks a first batch of fewer, numbered records. A round is one process."""
    name = contender.__name__
    numbers = launched(name, str(CHECKED), "check")
    if len(set(numbers)) != BATCH or max(numbers) >= CHECKED:
        raise WrongAnswer(f"{len(set(numbers))} different records of {BATCH}")
    if numbers == sorted(numbers):
        raise WrongAnswer("records in the order of the source")
    return Task(1, lambda: launched(name, str(RECORDS)))
