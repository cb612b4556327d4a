"""Loader processes that die, hang or are interrupted, at each of their three stages.

The stages are the startup function, the loader function and the return of additional
data, which the process pickles.
"""

from __future__ import annotations

import gc
import os
import threading
import time

import hydrax_loaders as loaders
import psutil
import pytest
from hydrax_loaders import fill, gathered, group
from millstream import WorkerError
from millstream.hydrax import BatchTimeoutError, Dataloader, _run

STAGES = ("startup", "loading", "returning")


def faulty(stage, kind, **more):
    if stage == "startup":
        fault = loaders.FaultAtStartup(kind)
        return Dataloader(fill, group(), startup_func=fault, timeout_sec=1, **more)
    classes = {
        "loading": loaders.FaultWhileLoading,
        "returning": loaders.FaultWhileReturning,
    }
    return Dataloader(classes[stage](kind), group(), timeout_sec=1, **more)


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    """No process, thread, file descriptor or shared memory outlives a test."""
    monkeypatch.setattr(_run, "_START", 0.0)
    gathered(Dataloader(fill, group(), end_at=("batch", 1)))
    before = _left()
    yield
    deadline = time.monotonic() + 30
    while any(after > then for after, then in zip(_left(), before, strict=True)):
        assert time.monotonic() < deadline, (_left(), before)
        time.sleep(0.05)


def _left():
    gc.collect()
    process = psutil.Process()
    shared = [name for name in os.listdir("/dev/shm") if "millstream" in name]
    children = process.children(recursive=True)
    return len(children), threading.active_count(), process.num_fds(), len(shared)


def run(loader):
    with loader:
        for _ in loader:
            pass


@pytest.mark.parametrize("on_error", ["drop", "raise"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_process_that_dies_is_named(stage, on_error):
    with pytest.raises(WorkerError, match="killed by signal 9") as caught:
        run(faulty(stage, "die", on_error=on_error))
    assert f"worker process {caught.value.pid} was killed" in str(caught.value)
    where = "before it made its first sample" if stage == "startup" else "sample 5"
    assert where in str(caught.value)
    batch = 0 if stage == "startup" else 1
    assert f"raised for batch {batch} " in "".join(caught.value.__notes__)


@pytest.mark.parametrize("stage", STAGES)
def test_a_process_that_hangs_is_named(stage):
    loader = faulty(stage, "hang")
    with pytest.raises(BatchTimeoutError) as caught:
        run(loader)
    told = str(caught.value)
    if stage == "startup":
        assert "no batches have been produced in 1 seconds" in told
        assert "the next one is batch 0" in told
        (pid,) = told.partition("loader processes [")[2].partition("]")[0].split(",")
        assert not psutil.pid_exists(int(pid))
    else:
        assert "sample 5 has taken more than 1000 ms in worker process" in told
        assert "in happen" in told  # the stack of the process


@pytest.mark.parametrize("on_error", ["drop", "raise"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_process_that_is_interrupted_is_named(stage, on_error):
    with pytest.raises(WorkerError, match="raised KeyboardInterrupt in") as caught:
        run(faulty(stage, "interrupt", on_error=on_error))
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    notes = "".join(caught.value.__notes__)
    assert "in worker process " in notes
    if stage == "startup":
        assert "during startup: of the worker" in str(caught.value)
    else:
        assert "for sample 5: of the worker" in str(caught.value)
        assert "item 5 of its group" in notes


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_ends_the_wait_for_a_process_that_hangs(stage):
    loader = faulty(stage, "hang")
    loader._timeout = None
    with loader:
        if stage != "startup":
            next(loader)
        timer = threading.Timer(0.5, loader.interrupt)
        timer.start()
        assert list(loader) == []
        timer.join()
    assert loader.interrupted
