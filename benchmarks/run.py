"""Runs the benchmarks: `python benchmarks/run.py`.

Every contender is a process of its own, one at a time, in rounds of all of them.
Needs the standard library alone; `setup.sh` makes the peers' environments first.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from catalogue import CONTENDERS, HERE, WORKLOADS, Kind, contenders_of, interpreter
from processes import run_round
from report import markdown, missed
from results import Outcome, Results

ROUNDS = 3
QUICK_ROUNDS = 2
QUICK_KINDS = (Kind.OURS, Kind.LIMIT)


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--workloads", nargs="+", default=["*"], help="names or patterns; all of them"
    )
    parser.add_argument(
        "--contenders", nargs="+", default=["*"], help="names or patterns; all of them"
    )
    parser.add_argument(
        "--rounds", type=int, help=f"{ROUNDS}, or {QUICK_ROUNDS} with --quick"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few rounds of millstream and the limits"
    )
    parser.add_argument("--cores", type=int, default=2, help="how many to run on; 2")
    parser.add_argument("--output", type=Path, help="where the results go, as JSON")
    parser.add_argument("--table", type=Path, help="where the tables go, as Markdown")
    parser.add_argument("--chart", type=Path, help="an .svg; a .png is put beside it")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if a target is missed"
    )
    return parser.parse_args()


def matching(names: list[str], patterns: list[str]) -> list[str]:
    """The names that fit any pattern; an error if a pattern fits none."""
    for pattern in patterns:
        if pattern != "*" and not any(fnmatch(name, pattern) for name in names):
            raise SystemExit(f"{pattern}: none of {', '.join(names)}")
    return [name for name in names if any(fnmatch(name, each) for each in patterns)]


def plan(options: argparse.Namespace) -> dict[str, list[str]]:
    """The contenders to run by workload."""
    chosen = matching(list(CONTENDERS), options.contenders)
    kinds = QUICK_KINDS if options.quick else tuple(Kind)
    contenders = {name for name in chosen if CONTENDERS[name].kind in kinds}
    return {
        workload: [name for name in contenders_of(workload) if name in contenders]
        for workload in matching(list(WORKLOADS), options.workloads)
    }


def turns(workload: str, contenders: list[str], rounds: int) -> Iterator[str]:
    """The contenders in the order they run; peers skip the extra repeats."""
    repeats = WORKLOADS[workload].repeats
    for turn in range(rounds * repeats):
        for contender in contenders:
            if turn % repeats == 0 or CONTENDERS[contender].kind is not Kind.PEER:
                yield contender


def run(workload: str, contenders: list[str], rounds: int) -> dict[str, Outcome]:
    """The outcomes of a workload; a contender that fails is not run again."""
    outcomes = {contender: Outcome() for contender in contenders}
    for contender in turns(workload, contenders, rounds):
        outcome = outcomes[contender]
        if outcome.status != "ok":
            continue
        done = run_round(workload, contender, check=not outcome.timings)
        outcome.add(done)
        seconds = [min(each["seconds"]) for each in done.measurements]
        shown = " ".join(f"{each:.3g}s" for each in seconds) or done.detail
        print(f"{workload} {contender}: {done.status} {shown}", file=sys.stderr)
    return outcomes


def draw(results: Path, chart: Path) -> None:
    """Draws the chart with the Python of the environment `plot`, or with this one."""
    plot = interpreter("plot")
    python = str(plot) if plot.exists() else sys.executable
    command = [python, str(HERE / "chart.py"), str(results), str(chart)]
    if subprocess.run(command).returncode != 0:
        print("no chart: `benchmarks/setup.sh plot` makes it possible", file=sys.stderr)


def main() -> int:
    """Runs what was asked for, writes it down and returns the exit code."""
    options = arguments()
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    if options.cores:
        cores = sorted(os.sched_getaffinity(0))[: options.cores]
        os.sched_setaffinity(0, cores)
    results = Results.of_this_machine()
    output = options.output
    if options.chart and not output:
        output = options.chart.with_suffix(".json")
    for workload, contenders in plan(options).items():
        results.outcomes[workload] = run(workload, contenders, rounds)
        if output:
            results.write(output)
    print(markdown(results))
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(markdown(results))
    if options.chart:
        draw(output.resolve(), options.chart.resolve())
    return 1 if options.strict and missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
