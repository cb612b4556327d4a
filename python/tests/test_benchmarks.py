"""The benchmarks: how results are compared, and one small run."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent.parent.parent / "benchmarks"
OURS, RIVAL = "millstream", "torch_batched"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return import_module("report")


def results_of(report: ModuleType, ours: list[float], theirs: list[float]):
    """Returns results in which each run took the given seconds per sample."""
    found = report.Results(machine={}, outcomes={"host_loop": {}})
    run = import_module("results").Run
    for name, seconds in ((OURS, ours), (RIVAL, theirs)):
        runs = [run([each], [each]) for each in seconds]
        found.outcomes["host_loop"][name] = report.Outcome(samples=1, runs=runs)
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "first"),
    [
        ([1, 1, 1], [2, 3, 4], [OURS]),
        ([2, 3, 4], [1, 1, 1], [RIVAL]),
        ([1, 1, 1], [0.9, 1.2, 1.2], [OURS, RIVAL]),  # the range includes 1
        ([1, 1, 1], [1.02, 1.03, 1.2], [OURS, RIVAL]),  # within 5%
        ([1, 1, 1], [0.5, 0.5, 6], [RIVAL]),  # one bad run of three
    ],
)
def test_which_contender_is_first(report, ours, theirs, first):
    assert report.leaders(results_of(report, ours, theirs), "host_loop") == first


def test_runs_with_different_first_contenders_disagree(report):
    wins, ties, loses = (
        results_of(report, [1, 1, 1], [each] * 3) for each in (2, 1.01, 0.5)
    )
    assert report.disagreements(wins, loses) != []
    assert report.disagreements(wins, ties) == []
    assert report.disagreements(ties, loses) == []


def test_a_headline_is_the_median_ratio_with_the_range_of_the_runs(report):
    results = results_of(report, [1, 2, 1], [2, 10, 3])
    assert "3.00 (2.00 to 5.00)" in report.verdict(results, "host_loop")


def test_a_loss_is_printed(report):
    results = results_of(report, [4, 4, 4], [1, 1, 1])
    said = report.verdict(results, "host_loop")
    assert said.startswith("**torch, batched indexing** is first.")
    assert "Millstream reaches 25% (25% to 25%)" in said


def test_all_contenders_run_equally_many_rounds(tmp_path):
    output = tmp_path / "results.json"
    command = [sys.executable, FOLDER / "run.py", "--workloads", "scaling"]
    command += ["--contenders", "millstream_1e4", "take_1e4", "--runs", "2"]
    done = subprocess.run(
        [*command, "--output", output], capture_output=True, text=True, check=True
    )
    assert "### scaling" in done.stdout
    outcomes = json.loads(output.read_text())["outcomes"]["scaling"]
    rounds = [
        [len(run["seconds"]) for run in each["runs"]] for each in outcomes.values()
    ]
    assert rounds == [[4, 4], [4, 4]]
