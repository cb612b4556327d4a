"""The progress bar of ``scan_epoch``."""

from __future__ import annotations

import signal
import threading
import time

import jax
import millstream
import numpy as np
import progress_loops
import pytest
from conftest import Python

SLOW = """
    import threading
    import progress_loops
    data = progress_loops.loader(seconds=60)
    print("started", flush=True)
    try:
        data.scan_epoch(data.init_state(0), 0, progress_loops.body, progress=True)
    except KeyboardInterrupt:
        names = [thread.name for thread in threading.enumerate()]
        assert "millstream progress" not in names
        print("interrupted", data.delivered < data.steps_per_epoch, flush=True)
"""


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "millstream progress"]


def test_steps_are_shown_while_the_program_runs(monkeypatch, capsys) -> None:
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    data = progress_loops.loader(seconds=1)
    state = data.init_state(0)
    for epoch in range(2):  # the second starts with other batches delivered
        state, _, _ = data.scan_epoch(state, 0, progress_loops.body, progress=True)
        texts = capsys.readouterr().err.split("\r")
        assert texts[1].startswith(f"epoch {epoch}:   0%|")
        assert any(" 0/50 " not in t and " 50/50 " not in t for t in texts[1:])
        assert texts[-1].startswith(f"epoch {epoch}: 100%|")
        assert texts[-1].endswith("\n")
        assert threads() == []


def test_without_a_terminal_a_short_scan_is_quiet(monkeypatch, capsys) -> None:
    monkeypatch.delenv("MILLSTREAM_PROGRESS", raising=False)
    data = progress_loops.loader()
    data.scan_epoch(data.init_state(0), 0, progress_loops.body, progress=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("traced", [False, True])
def test_a_gathered_epoch_shows_its_end(monkeypatch, capsys, traced) -> None:
    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    rows = millstream.ArraySampleSource({"x": np.arange(20)})
    data = millstream.DataLoader([rows, millstream.BatchTransform(4)], traced=traced)
    _, steps, _ = data.scan_epoch(
        data.init_state(0), 0, progress_loops.body, steps=3, progress=True
    )
    assert steps == 3
    assert "100%|" in capsys.readouterr().err.split("\r")[-1]


def test_inside_jit_is_an_error() -> None:
    data = progress_loops.loader()
    state = data.init_state(0)

    def epoch(state, carry):
        return data.scan_epoch(state, carry, progress_loops.body, progress=True)

    for program in (jax.jit(epoch), jax.jit(lambda _, carry: epoch(state, carry))):
        with pytest.raises(ValueError, match="outside jit, or use run"):
            program(state, 0)
    with pytest.raises(ValueError, match="outside jit, or use run"):
        jax.jit(lambda: epoch(state, np.int32(0)))()
    assert int(epoch(state, 0)[1]) == data.steps_per_epoch


def test_an_error_ends_the_bar_and_is_raised(monkeypatch, capsys) -> None:
    def fails(batch, mask):
        raise LookupError("in the callback")

    monkeypatch.setenv("MILLSTREAM_PROGRESS", "1")
    data = millstream.DataLoader(
        [
            millstream.ArraySampleSource({"x": np.arange(20)}),
            millstream.BatchTransform(4),
            millstream.HostCallbackTransform(fails),
        ]
    )
    with pytest.raises(LookupError, match="in the callback"):
        data.scan_epoch(data.init_state(0), 0, progress_loops.body, progress=True)
    shown = capsys.readouterr().err
    assert "100%" not in shown
    assert shown.endswith("\n")
    assert threads() == []

    def wrong(carry, batch, mask):
        raise LookupError("while tracing")

    with pytest.raises(LookupError, match="while tracing"):
        data.scan_epoch(data.init_state(0), 0, wrong, progress=True)
    assert threads() == []


def test_ctrl_c_ends_the_scan_and_its_thread(python: Python) -> None:
    process = python.start(SLOW, MILLSTREAM_PROGRESS="1")
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    assert python.finished(process) == "interrupted True\n"


def test_without_threads_the_scan_runs(monkeypatch) -> None:
    def fails(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    progress_loops.compare()
