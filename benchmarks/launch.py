"""The process whose whole life is timed: `launch.py <workload> <contender> [N]`.

Without N the contender is only imported. With N its first batch of N records is
made; `check` after N fills the records with their numbers, where plain zeros take no
time to make. Prints JSON: the numbers of the records in the batch and the peak memory.
"""

import importlib
import resource
import sys

BATCH = 128


def first_batch(contender, size: int, check: bool) -> list[int]:
    """The numbers of the records in the contender's first batch."""
    import numpy as np

    if check:
        records = np.arange(size, dtype=np.uint32).view(np.uint8).reshape(size, 4)
    else:
        records = np.zeros((size, 4), np.uint8)
    batch = np.asarray(contender.first_batch(records, BATCH))
    return batch.view(np.uint32).ravel().tolist()


if __name__ == "__main__":
    workload, name, *rest = sys.argv[1:]
    contender = importlib.import_module(f"workloads.{workload}.{name}")
    numbers = first_batch(contender, int(rest[0]), "check" in rest) if rest else []
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f'{{"numbers": {numbers}, "peak_mib": {peak_mib}}}')
