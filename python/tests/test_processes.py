"""Several processes load one data set together and get the same batches as one."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from typing import Any

import jax
import loopback
import millstream as ms
import numpy as np
import pytest
from conftest import TESTS, Python

END = 2 * loopback.STEPS + 2


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return int(listening.getsockname()[1])


class Group:
    """Runs the processes of a job and reads their logs in the folder."""

    def __init__(self, python: Python) -> None:
        self.python = python
        self.folder = python.folder
        self.data = self.folder / "samples.packed"
        ms.write_packed(ms.ArraySampleSource(loopback.samples()), self.data)

    def run(self, name: str, processes: int, **job: Any) -> list[tuple[int, str]]:
        """Returns the exit status and the errors of each process."""
        job = {"processes": processes, "data": [str(self.data)], "end": END, **job}
        (self.folder / f"{name}.job").write_text(json.dumps(job))
        command = [sys.executable, TESTS / "loopback.py", self.folder, name]
        port = str(free_port())
        running = [
            subprocess.Popen(
                [*command, str(process), port],
                env=self.python.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for process in range(processes)
        ]
        ended = []
        for process in running:
            try:
                out, _ = process.communicate(timeout=100)
            except subprocess.TimeoutExpired:
                for other in running:
                    other.kill()
                pytest.fail(f"a process of {name} hangs\n{process.communicate()[0]}")
            ended.append((process.returncode, out))
        return ended

    def steps(self, name: str) -> dict[int, dict[str, np.ndarray]]:
        """Returns the global batch and losses of each step that all processes ran."""
        found: dict[int, dict[str, Any]] = {}
        for path in sorted(self.folder.glob(f"{name}-*-*.npz")):
            with np.load(path) as arrays:
                at = found.setdefault(int(path.stem.split("-")[-1]), {"losses": []})
                for key in arrays.files:
                    if key == "loss":
                        at["losses"].append(float(arrays[key]))
                    else:
                        at[key] = arrays[key]
        return {at: _concatenated(rows) for at, rows in found.items()}

    def counts(self, name: str) -> list[dict[str, int]]:
        paths = sorted(self.folder.glob(f"{name}-?.json"))
        return [json.loads(path.read_text()) for path in paths]


def _concatenated(rows: dict[str, Any]) -> dict[str, np.ndarray]:
    whole = {"losses": np.array(rows.pop("losses"))}
    for key in ("x", "y", "mask"):
        firsts = sorted(int(k.split(".")[1]) for k in rows if k.startswith(f"{key}."))
        if firsts:
            whole[key] = np.concatenate([rows[f"{key}.{first}"] for first in firsts])
    return whole


@pytest.fixture
def group(python: Python) -> Group:
    return Group(python)


def expected() -> list[tuple[Any, Any, float]]:
    """Returns the batches and losses of one process on one device."""
    source = ms.ArraySampleSource(loopback.samples())
    loader = ms.DataLoader([source, ms.BatchTransform(loopback.BATCH)])
    params, found = loopback.first_params(), []
    step = jax.jit(loopback.update)
    for batch, mask in loader.iterate(loader.init_state(11), steps=END):
        params, loss = step(params, batch, mask)
        found.append((batch, mask, float(loss)))
    return found


def check(found: dict[str, np.ndarray], wanted: tuple[Any, Any, float]) -> None:
    batch, mask, loss = wanted
    for key, value in {**batch, "mask": mask}.items():
        if "mask" in found:
            assert found[key].tobytes() == np.asarray(value).tobytes(), key
    assert len(set(found["losses"])) == 1
    np.testing.assert_allclose(found["losses"][0], loss, rtol=1e-5)


def test_killed_and_resumed_on_other_numbers_of_processes(group: Group) -> None:
    """Together they see the same batches as an uninterrupted run on one device.

    Four processes are killed in the middle of an epoch. Two continue and are killed at
    the start of the second epoch. One continues to the end.
    """
    wanted = expected()
    ended = group.run("four", 4, kill=[2, 2])
    assert all(status != 0 for status, _ in ended)
    assert ended[2][0] == -signal.SIGKILL
    four = group.steps("four")
    resumed = json.loads((group.folder / "checkpoint.json").read_text())["state"]
    epoch, step = resumed["words"][3:5]
    assert epoch == 0
    assert step in (
        2,
        3,
    )  # the other processes may have been killed before they wrote it

    ended = group.run("two", 2, kill=[0, loopback.STEPS])
    assert all(status != 0 for status, _ in ended)
    two = group.steps("two")
    assert min(two) == step

    ended = group.run("one", 1)
    assert [status for status, _ in ended] == [0], ended
    one = group.steps("one")
    assert min(one) in (loopback.STEPS, loopback.STEPS + 1)

    for at, want in enumerate(wanted):
        runs = [run[at] for run in (four, two, one) if at in run]
        assert runs, f"nobody saw step {at}"
        for run in runs:
            check(run, want)


@pytest.mark.parametrize(
    ("processes", "mesh"), [(1, [8]), (8, [8]), (2, [8]), (2, [4, 2])]
)
def test_every_layout_has_the_same_global_batches(
    group: Group, processes: int, mesh: list[int]
) -> None:
    # Eight processes that start at once on few cores send their heartbeats late.
    ended = group.run("layout", processes, mesh=mesh, end=loopback.STEPS, heartbeat=60)
    assert [status for status, _ in ended] == [0] * processes, ended
    found = group.steps("layout")
    assert sorted(found) == list(range(loopback.STEPS))
    for at, want in enumerate(expected()[: loopback.STEPS]):
        check(found[at], want)


TWO_SPECS = {"x": ["data", "model"], "y": ["data"]}


@pytest.mark.parametrize("inside", [False, True])
def test_fields_with_different_shardings(group: Group, inside: bool) -> None:
    ended = group.run(
        "specs", 2, mesh=[4, 2], specs=[TWO_SPECS], inside=inside, end=loopback.STEPS
    )
    assert [status for status, _ in ended] == [0, 0], ended
    found = group.steps("specs")
    assert sorted(found) == list(range(loopback.STEPS))
    for at, want in enumerate(expected()[: loopback.STEPS]):
        check(found[at], want)


def test_processes_with_different_shardings_raise_errors(group: Group) -> None:
    rows = {key: ["data"] for key in TWO_SPECS}
    ended = group.run("differ", 2, mesh=[4, 2], specs=[TWO_SPECS, rows])
    for status, out in ended:
        assert status != 0
        assert (
            "in process 1 the sharding is x: P('data',), y: P('data',) over mesh "
            "(data=4, model=2), not x: P('data', 'model'), y: P('data',) over" in out
        )


def test_functions_with_host_fields(group: Group) -> None:
    ended = group.run("functions", 2, functions=True, end=loopback.STEPS)
    assert [status for status, _ in ended] == [0, 0], ended
    found = group.steps("functions")
    assert sorted(found) == list(range(loopback.STEPS))
    for at, want in enumerate(expected()[: loopback.STEPS]):
        check(found[at], want)


def test_each_process_reads_its_share(group: Group) -> None:
    ended = group.run("share", 4, inside=True, end=loopback.STEPS)
    assert [status for status, _ in ended] == [0] * 4, ended
    wanted = expected()
    for at, found in group.steps("share").items():
        check(found, wanted[at])
    row = loopback.FEATURES * 4 + 4
    shard = loopback.BATCH // 4 * row
    # Padding is not read. A few batches are prefetched.
    for count in group.counts("share"):
        assert (loopback.STEPS - 1) * shard <= count["bytes"]
        assert count["bytes"] <= (loopback.STEPS + 3) * shard


def test_a_sample_that_fails_on_one_process_ends_all(group: Group) -> None:
    other = group.folder / "other.packed"
    ms.write_packed(ms.ArraySampleSource(loopback.samples()), other)
    ended = group.run(
        "broken", 2, inside=True, data=[str(group.data), str(other)], shrink=[1, 1]
    )
    assert all(status != 0 for status, _ in ended)
    _, out = ended[1]
    assert "other.packed" in out
    assert "can no longer be read" in out
    aborted = out.find("Terminating process")
    assert aborted < 0 or out.find("can no longer be read") < aborted
    # Batches made before the file shrank are correct.
    assert {0, 1} <= set(group.steps("broken")) <= set(range(5))


def test_processes_with_different_data_raise_errors(group: Group) -> None:
    other = group.folder / "shorter.packed"
    shorter = {key: x[:-1] for key, x in loopback.samples().items()}
    ms.write_packed(ms.ArraySampleSource(shorter), other)
    ended = group.run("differ", 2, data=[str(group.data), str(other)])
    for status, out in ended:
        assert status != 0
        assert "in process 1 the number of samples is 89, not 90" in out


@pytest.mark.parametrize("inside", [False, True])
def test_processes_with_different_states_raise_errors(
    group: Group, inside: bool
) -> None:
    ended = group.run("elsewhere", 2, keys=[11, 12], inside=inside)
    for status, out in ended:
        assert status != 0
        assert "in process 1 the state's key is [0, 12], not [0, 11]" in out


def test_a_missing_process_is_named(group: Group) -> None:
    ended = group.run("absent", 2, absent=1)
    status, out = ended[0]
    assert status != 0
    assert "processes [1] have not built this loader within 2 s" in out


def test_a_late_process_causes_a_warning(group: Group) -> None:
    ended = group.run("late", 2, late=1, end=2)
    wanted = expected()
    for at, found in group.steps("late").items():
        check(found, wanted[at])
    for status, out in ended:
        assert status == 0, out
        assert "processes [1] have not used this loader within 1 s" in out
