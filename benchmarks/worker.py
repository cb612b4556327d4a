"""The process of one contender of one workload: `worker.py <workload> <contender>`.

`turns.py` starts it with the interpreter of the contender's environment. It prepares
the contender and checks its batches. Then it runs one round for each line that it
reads, and prints the times as one line of JSON.
"""

import importlib
import json
import os
import resource
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from catalogue import WORKLOADS
from harness import Task, WrongAnswer

PACKAGES = (
    *("millstream", "jax", "jaxlib", "numpy", "torch", "tensorflow-cpu", "grain"),
    *("mlx-data", "spdl", "cyreal", "jax-dataloader", "hydrax", "datasets", "pyarrow"),
    "gymnax",
)


def versions() -> dict[str, str]:
    """The versions of the packages in this environment that affect the times."""
    found = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def peak_mib() -> int:
    """The peak memory of this process or its largest child that has ended, in MiB."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in both) // 1024


def prepared(workload: str, contender: str) -> Task:
    """The contender's task, after its batches have been checked."""
    folder = WORKLOADS[workload].folder or workload
    question = importlib.import_module(f"workloads.{workload}.workload")
    answer = importlib.import_module(f"workloads.{folder}.{contender}")
    return question.prepare(answer)


def main() -> None:
    """Prints `{"status": ...}`, then runs a round for each line of standard input."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # sends what libraries print to standard error

    def reply(**answer: Any) -> None:
        print(json.dumps(answer), file=channel, flush=True)

    try:
        task = prepared(*sys.argv[1:3])
    except WrongAnswer as error:
        reply(status="wrong", detail=str(error))
        return
    reply(status="ok", samples=task.samples, extra=task.extra, versions=versions())
    for _ in sys.stdin:
        try:
            reply(status="ok", **task.round(), peak_mib=peak_mib())
        except WrongAnswer as error:
            reply(status="wrong", detail=str(error))
    task.close()


if __name__ == "__main__":
    main()
    os._exit(0)  # some libraries wait for their threads at exit
