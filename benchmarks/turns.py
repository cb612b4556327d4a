"""Runs contenders in turns: each in a process of its own, one round at a time."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from catalogue import HERE, WORKLOADS
from results import Outcome, Run

TIMEOUT = 300
SIMULTANEOUS_STARTS = 2
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "PYTHONPATH": "",
    "PYTHONSAFEPATH": "",
}


class Failed(Exception):
    """A contender could not be timed. It carries the `Outcome`'s status and detail."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


class ContenderProcess:
    """A running `worker.py`; its methods raise `Failed`."""

    def __init__(self, workload: str, contender: str, python: Path) -> None:
        if not python.exists():
            raise Failed("missing", "its environment does not exist: run setup.sh")
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(python), "worker.py", workload, contender],
            cwd=HERE,
            env=os.environ | ENVIRONMENT | {"BATCH": f"{WORKLOADS[workload].batch}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
        )
        try:
            self.ready = self.answer()
        except BaseException:
            self.close()
            raise

    def answer(self) -> dict[str, Any]:
        """The next answer; raises `Failed` if it is late, wrong or missing."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], TIMEOUT)[0]:
            raise Failed("late", f"no answer in {TIMEOUT} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            raise Failed("failed", lines[-1] if lines else f"exit code {code}")
        answer = json.loads(line)
        if answer["status"] != "ok":
            raise Failed(answer["status"], answer["detail"])
        return answer

    def round(self) -> dict[str, Any]:
        """Runs one round and returns its times."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            print("round", file=self.process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        """Ends the process and its children."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.errors.close()


def started(
    workload: str, pythons: dict[str, Path], outcomes: dict[str, Outcome]
) -> dict[str, ContenderProcess]:
    """The processes that are ready. Stores in `outcomes` why the others are not."""

    def start(name: str) -> ContenderProcess | None:
        contender = name.partition("@")[0]
        try:
            process = ContenderProcess(workload, contender, pythons[name])
        except Failed as failure:
            outcomes[name].fail(failure.status, failure.detail)
            return None
        outcomes[name].describe(process.ready)
        return process

    with ThreadPoolExecutor(SIMULTANEOUS_STARTS) as threads:
        ready = zip(pythons, threads.map(start, pythons), strict=True)
        return {name: each for name, each in ready if each is not None}


def run_in_turns(
    workload: str, pythons: dict[str, Path], outcomes: dict[str, Outcome]
) -> None:
    """One run: new processes that take turns. The first round does not count."""
    processes = started(workload, pythons, outcomes)
    runs = {name: Run() for name in processes}
    try:
        for number in range(1 + WORKLOADS[workload].rounds):
            for name in rotated(list(processes), number):
                try:
                    times = processes[name].round()
                except Failed as failure:
                    outcomes[name].fail(failure.status, failure.detail)
                    processes.pop(name).close()
                    continue
                if number > 0:
                    runs[name].add(times)
    finally:
        for process in processes.values():
            process.close()
    for name in processes:
        outcomes[name].runs.append(runs[name])


def rotated(names: list[str], number: int) -> list[str]:
    """The names, starting with another one in each round."""
    first = number % len(names) if names else 0
    return names[first:] + names[:first]


def measured(
    workload: str,
    pythons: dict[str, Path],
    runs: int,
    progress: Callable[[str], object],
) -> dict[str, Outcome]:
    """Runs a workload and returns its outcomes. A failed contender runs no more."""
    outcomes = {name: Outcome() for name in pythons}
    for number in range(runs):
        start = time.perf_counter()
        left = {name: pythons[name] for name in outcomes if outcomes[name].ok}
        run_in_turns(workload, left, outcomes)
        took = time.perf_counter() - start
        progress(f"{workload}, run {number + 1} of {runs}: {took:.0f} s")
        for line in summary(outcomes):
            progress(line)
    return outcomes


def summary(outcomes: dict[str, Outcome]) -> Iterator[str]:
    """A line for each contender: the last run's median in seconds, or the failure."""
    for name, outcome in outcomes.items():
        shown = f"{outcome.runs[-1].median:.4g} s" if outcome.ok else outcome.detail
        yield f"  {name}: {outcome.status} {shown}"
