"""One contender, one process: how rounds are run and what comes back of each."""

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any

from catalogue import CONTENDERS, HERE, WORKLOADS, interpreter

CHECKED_RECORDS = 10**5
LAUNCHED_RECORDS = 10**8
BATCH = 128
TIMEOUT = 600
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONPATH": "",
    "PYTHONSAFEPATH": "",
}


@dataclass(frozen=True)
class Round:
    """What one process came to: `ok`, `wrong`, `failed`, `missing` or `late`."""

    status: str
    detail: str = ""
    measurements: list[dict[str, Any]] = field(default_factory=list)
    peak_mib: int = 0
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A process that has ended, and its wall time."""

    code: int
    output: str
    errors: str
    seconds: float

    def answer(self) -> dict[str, Any]:
        """The JSON of the last line of the output."""
        return json.loads(self.output.splitlines()[-1])

    def failure(self) -> Round:
        """The round of a process that failed: the last line it wrote."""
        lines = (self.errors or self.output).strip().splitlines()
        return Round("failed", lines[-1] if lines else f"exit code {self.code}")


def finished(contender: str, *arguments: str) -> Finished:
    """Runs a script of this folder with the contender's Python until it ends."""
    python = interpreter(CONTENDERS[contender].environment)
    start = time.perf_counter()
    process = subprocess.Popen(
        [str(python), *arguments],
        cwd=HERE,
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    seconds = time.perf_counter() - start
    return Finished(process.returncode, output, errors, seconds)


def worked(workload: str, contender: str) -> Round:
    """A round of a workload that a worker measures from inside."""
    ended = finished(contender, "worker.py", workload, contender)
    if ended.code != 0:
        return ended.failure()
    return Round(**ended.answer())


def launched(workload: str, contender: str, *, check: bool) -> Round:
    """A round of a workload that times the whole process from outside."""
    arguments = ["launch.py", workload, contender]
    if workload == "start_batch":
        if check and (wrong := checked_batch(contender, arguments)):
            return wrong
        arguments.append(str(LAUNCHED_RECORDS))
    ended = finished(contender, *arguments)
    if ended.code != 0:
        return ended.failure()
    measurement = {"samples": 1, "seconds": [ended.seconds], "variant": "", "extra": {}}
    return Round("ok", measurements=[measurement], peak_mib=ended.answer()["peak_mib"])


def checked_batch(contender: str, arguments: list[str]) -> Round | None:
    """The round of a contender whose first batch is no shuffled batch, or None."""
    ended = finished(contender, *arguments, str(CHECKED_RECORDS), "check")
    if ended.code != 0:
        return ended.failure()
    numbers = ended.answer()["numbers"]
    if len(set(numbers)) != BATCH or max(numbers) >= CHECKED_RECORDS:
        return Round("wrong", f"{len(set(numbers))} different records of {BATCH}")
    if numbers == sorted(numbers):
        return Round("wrong", "records in the order of the source")
    return None


def run_round(workload: str, contender: str, *, check: bool) -> Round:
    """Runs one contender once and returns what came of it, whatever it was."""
    environment = CONTENDERS[contender].environment
    if not interpreter(environment).exists():
        return Round("missing", f"no environment {environment}: run setup.sh")
    try:
        if WORKLOADS[workload].launched:
            return launched(workload, contender, check=check)
        return worked(workload, contender)
    except subprocess.TimeoutExpired:
        return Round("late", f"more than {TIMEOUT} s")
