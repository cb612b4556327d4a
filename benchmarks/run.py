"""Runs the benchmarks: `python benchmarks/run.py`.

Every contender is a separate process. The contenders take turns, one round at a time.
There are three runs with new processes. Run `setup.sh` first: it creates the
environments of the peers. This file needs only the standard library.
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
        "--workloads", nargs="+", default=["*"], help="names or patterns; default: all"
    )
    parser.add_argument(
        "--contenders", nargs="+", default=["*"], help="names or patterns; default: all"
    )
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="number of runs; default: %(default)s"
    )
    parser.add_argument(
        "--cores", type=int, default=2, help="number of cores; default: %(default)s"
    )
    parser.add_argument("--output", type=Path, help="write the results here as JSON")
    return parser.parse_args()


def matching(names: list[str], patterns: list[str]) -> list[str]:
    """The names that match any pattern. Ends the program if a pattern matches none."""
    for pattern in patterns:
        if pattern != "*" and not any(fnmatch(name, pattern) for name in names):
            raise SystemExit(
                f"{pattern!r} matches nothing: expected one of {', '.join(names)}"
            )
    return [name for name in names if any(fnmatch(name, each) for each in patterns)]


def plan(options: argparse.Namespace) -> dict[str, dict[str, Path]]:
    """The contenders to run and their interpreters, by workload."""
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
    """The current commit, with `-dirty` if files have changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def say(line: str) -> None:
    """Prints a line of progress to standard error."""
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Runs the chosen workloads, prints their tables and writes the results."""
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
