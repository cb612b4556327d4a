"""Compares this checkout with another commit: `against.py COMMIT [--workloads ...]`.

Builds the commit's package and installs it into an environment of its own. Then the
Millstream contenders of both versions take turns. Both run the benchmark files of this
checkout.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from catalogue import CONTENDERS, HERE, OWN, WORKLOADS, Kind, contenders_of, interpreter
from report import row, shown
from results import Outcome, Ratio
from run import RUNS, matching, say
from turns import measured

ROOT = HERE.parent
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
NEEDS_OTHERS = {"torch_dataset", "hugging_face"}  # these need torch or datasets


def call(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command and returns its output. Ends the program if it fails."""
    done = subprocess.run(
        [str(each) for each in command], cwd=cwd, stdout=subprocess.PIPE, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return done.stdout.strip()


def environment(name: str) -> Path:
    """The Python of a new environment with Millstream's dependencies only.

    Both versions get one, because importing JAX takes longer with more packages.
    """
    python = HERE / ".venvs" / name / "bin" / "python"
    ready = python.parent.parent / "ready"
    if ready.exists():
        return python
    own = interpreter(OWN)
    call(own, "-m", "venv", "--clear", python.parent.parent)
    versions = [
        line
        for line in call(own, "-m", "pip", "freeze").splitlines()
        if line.partition("==")[0] in {"jax", "jaxlib", "numpy", "cloudpickle"}
    ]
    call(python, *PIP, "install", *versions)
    ready.touch()
    return python


def install(source: Path, python: Path) -> None:
    """Builds the package of a checkout and installs it for ``python``."""
    with tempfile.TemporaryDirectory() as wheels:
        build = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels)
        call(interpreter(OWN), *PIP, *build, source)
        wheel = next(Path(wheels).glob("*.whl"))
        call(python, *PIP, "install", "--no-deps", "--force-reinstall", wheel)


def checkout() -> Path:
    """The Python of an environment with the package of this checkout."""
    python = environment("checkout")
    install(ROOT, python)
    return python


def built(commit: str) -> Path:
    """The Python of an environment with a commit's package, which is built once."""
    python = environment(f"commit-{commit}")
    done = python.parent.parent / "built"
    if done.exists():
        return python
    source = HERE / ".cache" / f"commit-{commit}"
    if not source.exists():
        call("git", "worktree", "add", "--detach", source, commit)
    say(f"building {commit}")
    install(source, python)
    call("git", "worktree", "remove", "--force", source)
    done.touch()
    return python


def contenders(workload: str) -> list[str]:
    """The Millstream contenders of a workload."""
    names = contenders_of(workload)
    return [name for name in names if CONTENDERS[name].kind is Kind.OURS]


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--workloads", nargs="+", default=["*"])
    parser.add_argument("--runs", type=int, default=RUNS)
    return parser.parse_args()


def rows(workload: str, outcomes: dict[str, Outcome], commit: str) -> list[list[str]]:
    """A row for each contender of a workload: its ratios of speed and CPU time."""
    found = []
    for name in outcomes:
        other = outcomes.get(f"{name}@{commit}")
        if other is None:
            continue
        if not (outcomes[name].ok and other.ok):
            detail = outcomes[name].detail or other.detail
            found.append([workload, name, f"not timed: {detail}", ""])
            continue
        wall = Ratio.of(outcomes[name], other, "wall")
        cpu = Ratio.of(outcomes[name], other, "cpu")
        found.append([workload, name, shown(wall), shown(cpu)])
    return found


def main() -> None:
    """Prints how many times faster this checkout is than the commit."""
    options = arguments()
    commit = call("git", "rev-parse", "--short", options.commit)
    python = built(commit)
    own = checkout()
    heads = ["speed: this checkout / commit", "CPU time: commit / this checkout"]
    print(f"This checkout and {commit}, median and range of {options.runs} runs:\n")
    print(row(["workload", "contender", *heads]))
    print(row(["---", "---", "---:", "---:"]))
    for workload in matching(list(WORKLOADS), options.workloads):
        if workload in NEEDS_OTHERS:
            continue
        names = contenders(workload)
        pythons = dict.fromkeys(names, own)
        pythons |= {f"{name}@{commit}": python for name in names}
        outcomes = measured(workload, pythons, options.runs, say)
        for line in rows(workload, outcomes, commit):
            print(row(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
