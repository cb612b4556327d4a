"""The CPU time of a loader with two workers after its prefetch buffer is full.

A round is a second in which nobody requests a batch.
"""

import time
from itertools import islice
from types import ModuleType

from functions import row
from harness import Task
from workloads.python_gil.workload import Stream, check

LENGTH = 1024
IDLE = 1.0


def prepare(contender: ModuleType) -> Task:
    """Checks an epoch of the contender. It is idle afterwards."""
    stream: Stream = contender.build(row, LENGTH)
    batches = stream.batches()
    check(stream, batches, LENGTH)
    for batch in islice(batches, 8):
        del batch
    return Task(1, run=lambda: time.sleep(IDLE), close=batches.close)
