"""The rollout of `rollout` with 64 environments."""

from types import ModuleType

from harness import Task
from workloads.rollout import workload


def prepare(contender: ModuleType) -> Task:
    """Checks and times 64 environments."""
    return workload.prepare(contender, envs=64, batches=40)
