"""The command line as a process: streams, exit statuses and signals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from cli_files import write_all

# The process sends itself a signal while it converts.
SIGNALLED = """
import os, signal, sys
import millstream._core.progress_bar
from millstream._cli import main
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes a process ignore it
number = int(sys.argv[1])
def update(*_):
    os.kill(os.getpid(), number)
millstream._core.progress_bar.ProgressBar.update = update
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def command(python):
    """Returns a function that runs a shell command line."""

    def run(*arguments: object, shell: str = "") -> subprocess.CompletedProcess[str]:
        script = f'exec "$@" {shell}' if "|" not in shell else f'"$@" {shell}'
        words = [sys.executable, "-W", "error", *map(str, arguments)]
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", script, "bash", *words],
            env=python.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def test_the_module_is_a_command(tmp_path, command) -> None:
    source = write_all(tmp_path)["npz"]
    packed = tmp_path / "out.packed"
    for arguments, status in (
        (["convert", source, packed], 0),
        (["inspect", packed], 0),
        (["verify", packed, "missing"], 1),
        (["inspect"], 2),
    ):
        result = command("-m", "millstream", *arguments)
        assert result.returncode == status, result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("verb", "shell", "status", "error"),
    [
        ("inspect", ">&-", 1, "standard output: [Errno 9] Bad file descriptor\n"),
        (
            "verify",
            ">/dev/full",
            1,
            "standard output: [Errno 28] No space left on device\n",
        ),
        ("inspect", "| true", 1, ""),
        ("verify", "2>&-", 0, ""),
    ],
)
def test_closed_streams(tmp_path, command, verb, shell, status, error) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(9))
    result = command("-m", "millstream", verb, path, shell=shell)
    assert result.returncode == status
    assert result.stderr.endswith(error)
    assert result.stderr.count("\n") == error.count("\n")


@pytest.mark.parametrize(
    ("number", "status", "target"),
    [(2, 130, "x.npz"), (15, 143, "x.npz"), (15, 143, "x"), (1, 129, "x.csv")],
)
def test_no_files_are_left_after_a_signal(
    tmp_path, command, number: int, status: int, target: str
) -> None:
    source = tmp_path / "a.npy"
    np.save(source, np.arange(1000))
    result = command("-c", SIGNALLED, number, "convert", source, tmp_path / target)
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_ctrl_c_during_the_start(run, monkeypatch) -> None:
    class Interrupted:
        def find_spec(self, *_: object) -> None:
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "millstream._cli.arguments", raising=False)
    monkeypatch.setattr("sys.meta_path", [Interrupted(), *sys.meta_path])
    result = run("inspect", "x")
    assert result.status == 130
    assert result.err == "millstream: interrupted\n"
