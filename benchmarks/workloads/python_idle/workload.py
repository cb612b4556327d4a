"""What workers use of the CPU when all that may be made ahead is made.

The workers are every process below this one; what this one uses is told apart.
"""

import os
import time
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import ModuleType

from functions import row
from harness import Measurement
from workloads.python_gil.workload import check

LENGTH = 1024
SETTLED = 1.0
IDLE = 3.0
NONE = 1e-9  # a rate has to have something to divide by
PROC = Path("/proc")


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(folder.name)] = int(state[1])
    return found


def workers() -> list[int]:
    """The processes below this one."""
    below = [os.getpid()]
    known = parents()
    for process in below:
        below += [pid for pid, parent in known.items() if parent == process]
    return below[1:]


def cpu_seconds(process: int) -> float:
    """What the threads of a process have used, to the nanosecond."""
    tasks = (PROC / str(process) / "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def measure(contender: ModuleType) -> list[Measurement]:
    """CPU seconds a second of the workers and of this process."""
    stream = contender.build(row, LENGTH)
    with closing(stream.batches()) as batches:
        check(stream, batches, LENGTH)
    with closing(stream.batches()) as batches:
        for batch in islice(batches, 8):
            del batch
        time.sleep(SETTLED)
        crew = workers()
        groups = {"workers": crew, "own process": [os.getpid()]}
        before = {name: sum(map(cpu_seconds, ids)) for name, ids in groups.items()}
        time.sleep(IDLE)
        return [
            Measurement(
                1,
                [max((sum(map(cpu_seconds, ids)) - before[name]) / IDLE, NONE)],
                name,
            )
            for name, ids in groups.items()
        ]
