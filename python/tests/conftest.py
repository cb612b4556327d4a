"""Fixtures: data, Python processes and a file server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import file_server
import millstream
import numpy as np
import pytest
from cli_files import Command, run_with
from file_server import FileServer
from millstream._datasets import download

TESTS = Path(__file__).resolve().parent

# A shell starts background jobs with SIGINT ignored. Tests of Ctrl-C would then wait
# forever, so this restores the default, which child processes inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def fails(call: Any, *texts: str, kind: type[Exception] = TypeError) -> None:
    """Checks that ``call`` raises an error that contains all texts."""
    with pytest.raises(kind) as caught:
        call()
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    for text in texts:
        assert text in message


def rows_of(n: int) -> dict[str, np.ndarray]:
    """Returns samples whose rows all have different bytes."""
    x = np.arange(1, n + 1, dtype=np.int32)[:, None] * np.array([1, 7, -3], np.int32)
    return {"x": x, "y": (np.arange(n) % 251 + 1).astype(np.uint8)}


class Python:
    """Runs code in a separate Python process that can import the package and tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environment(self, **more: str) -> dict[str, str]:
        package = Path(millstream.__file__).parent.parent  # the installed package
        path = os.pathsep.join([str(TESTS), str(package)])
        return {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **more}

    def start(self, code: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
            env=self.environment(**more),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finished(self, process: subprocess.Popen[str]) -> str:
        """Returns its output. The test fails if the exit status is not 0."""
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"the process hangs\n{out}\n{err}")
        assert process.returncode == 0, f"status {process.returncode}\n{out}\n{err}"
        return out

    def run(self, code: str, **more: str) -> str:
        return self.finished(self.start(code, **more))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts the longest test first, so that it does not run alone at the end."""
    items.sort(key=lambda item: item.name != "test_eight_devices")


@pytest.fixture
def python(tmp_path: Path) -> Python:
    return Python(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return run_with(capsys)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server.serving() as files:
        yield files


@pytest.fixture
def no_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes proxies and settings from the environment, and shortens retry pauses."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("MILLSTREAM_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(download, "_PAUSE", 0.01)
