"""Runs one contender of one workload in this process and prints what it measured.

Called by `run.py` with the interpreter of the contender's environment. The last
line of the output is JSON: a status, a detail and the measurements.
"""

import importlib
import json
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from harness import WrongAnswer


def versions() -> dict[str, str]:
    """The versions of the packages that matter to every contender."""
    found = {}
    for package in ("jax", "numpy", "millstream"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def measured(workload: str, contender: str) -> dict[str, Any]:
    """The result of a contender: `ok` with measurements, or `wrong` with the reason."""
    question = importlib.import_module(f"workloads.{workload}.workload")
    answer = importlib.import_module(f"workloads.{workload}.{contender}")
    try:
        measurements = question.measure(answer)
    except WrongAnswer as error:
        return {"status": "wrong", "detail": str(error)}
    return {
        "status": "ok",
        "measurements": [each.as_dict() for each in measurements],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "versions": versions(),
    }


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:3])), flush=True)
