"""Runs the benchmarks: `python benchmarks/run.py`.

Every contender is a process of its own. They take turns, round by round, three times
with fresh processes. Needs only the standard library; `setup.sh` makes the peers'
environments first.
"""

import argparse
import os
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

from catalogue import CONTENDERS, HERE, WORKLOADS, contenders_of, interpreter
from report import tables
from results import Results
from turns import measured

RUNS = 3
RESULTS = HERE / "results" / "latest.json"


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--workloads", nargs="+", default=["*"], help="names or patterns; all of them"
    )
    parser.add_argument(
        "--contenders", nargs="+", default=["*"], help="names or patterns; all of them"
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"{RUNS} by default")
    parser.add_argument("--cores", type=int, default=2, help="how many to run on; 2")
    parser.add_argument("--output", type=Path, help="where the results go, as JSON")
    return parser.parse_args()


def matching(names: list[str], patterns: list[str]) -> list[str]:
    """The names that fit any pattern; an error if a pattern fits none."""
    for pattern in patterns:
        if pattern != "*" and not any(fnmatch(name, pattern) for name in names):
            raise SystemExit(f"{pattern}: none of {', '.join(names)}")
    return [name for name in names if any(fnmatch(name, each) for each in patterns)]


def plan(options: argparse.Namespace) -> dict[str, dict[str, Path]]:
    """The interpreters of the contenders to run, by workload."""
    chosen = matching(list(CONTENDERS), options.contenders)
    return {
        workload: {
            name: interpreter(CONTENDERS[name].environment)
            for name in contenders_of(workload)
            if name in chosen
        }
        for workload in matching(list(WORKLOADS), options.workloads)
    }


def commit() -> str:
    """The commit that is measured, marked where files of it were changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def say(line: str) -> None:
    """Writes a line of progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Runs what was asked for, prints its tables and writes them down."""
    options = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    results = Results.of_this_machine(commit())
    start = time.monotonic()
    for workload, pythons in plan(options).items():
        results.outcomes[workload] = measured(workload, pythons, options.runs, say)
        results.minutes = (time.monotonic() - start) / 60
        if options.output:
            results.write(options.output)
    print(tables(results))


if __name__ == "__main__":
    main()
