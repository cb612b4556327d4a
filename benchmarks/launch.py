"""A process that is timed from start to end: `launch.py <workload> <contender> [N]`.

Without N it only imports the contender. With N it also makes the first batch of N
records. With `check`, each record holds its number. Prints the numbers in the batch.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path

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


def launched(contender_module: str, *arguments: str) -> list[int]:
    """Runs this file for the contender in a module and returns what it prints."""
    _, workload, contender = contender_module.split(".")
    command = [sys.executable, __file__, workload, contender, *arguments]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    workload, name, *rest = sys.argv[1:]
    contender = importlib.import_module(f"workloads.{workload}.{name}")
    numbers = first_batch(contender, int(rest[0]), "check" in rest) if rest else []
    print(json.dumps(numbers))
