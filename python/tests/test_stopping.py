"""Functions that raise exceptions that would end a loop or the program."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from conftest import Python
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    HostCallbackTransform,
    PythonMapTransform,
    WorkerError,
    fill_source,
)
from millstream._workers.executor import Executor
from millstream._workers.tasks import FillTask

N, BATCH = 20, 2
KINDS = ["thread", "process"]
SPEC = {"y": jax.ShapeDtypeStruct((), np.int32)}


def sources(raising: Callable[..., Any], kind: str) -> dict[str, list[Any]]:
    """Returns every way to put a function of a sample's index into a pipeline."""
    numbers = {"y": np.arange(N, dtype=np.int32)}
    more: Any = {"worker_kind": kind}
    return {
        "sample": [DiskSampleSource(N, raising, SPEC, "sequential", **more)],
        "several": [DatasetSource(fns.Lots(N, raising), SPEC, "sequential", **more)],
        "map": [
            ArraySampleSource(numbers, "sequential"),
            PythonMapTransform(fns.OfSample(raising), SPEC, **more),
        ],
        "fill": [
            fill_source(
                fns.OfItem(raising), range(N), SPEC, ordering="sequential", **more
            )
        ],
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["sample", "several", "map", "fill"])
def test_stop_iteration_of_a_function_is_an_error(kind: str, how: str) -> None:
    stages = sources(fns.stopping, kind)[how]
    loader = DataLoader([*stages, BatchTransform(BATCH)])
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        list(loader.iterate(loader.init_state(0)))
    cause = caught.value.__cause__
    assert isinstance(cause, StopIteration)
    assert cause.value == "of the function"
    assert any("10" in note for note in caught.value.__notes__)


def test_stop_iteration_of_a_callback_is_an_error() -> None:
    def stop(batch: Any, mask: Any) -> None:
        if batch["y"][0] == 10:
            next(iter([]))

    numbers = {"y": np.arange(N, dtype=np.int32)}
    loader = DataLoader(
        [
            ArraySampleSource(numbers, "sequential"),
            BatchTransform(BATCH),
            HostCallbackTransform(stop),
        ]
    )
    with pytest.raises(RuntimeError, match="fn raised StopIteration") as caught:
        list(loader.iterate(loader.init_state(0)))
    assert isinstance(caught.value.__cause__, StopIteration)
    with pytest.raises(RuntimeError, match="fn raised StopIteration"):
        loader.scan_epoch(loader.init_state(0), 0, lambda c, b, m: (c, None))


ENDS = {
    "exit": (fns.leaving, SystemExit),
    "interrupt": (fns.interrupted, KeyboardInterrupt),
    "close": (fns.closing, GeneratorExit),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("how", ["sample", "several", "map", "fill"])
def test_exceptions_that_would_end_the_program_are_errors(
    how: str, end: str, kind: str
) -> None:
    function, expected = ENDS[end]
    stages = sources(function, kind)[how]
    loader = DataLoader([*stages, BatchTransform(BATCH)])
    message = rf"raised {expected.__name__} in a worker, for .*\b10\b"
    with pytest.raises(WorkerError, match=message) as caught:
        list(loader.iterate(loader.init_state(0)))
    assert isinstance(caught.value.__cause__, expected)
    words = np.asarray(loader.init_state(0).words).copy()
    words[4] = 9
    batch, _, _ = loader.next_batch(words)
    assert np.asarray(batch["y"]).tolist() == [18, 19]


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_cannot_end_the_program(kind: str, python: Python) -> None:
    process = python.start(f"""
        import worker_functions as fns
        from millstream import BatchTransform, DataLoader, DiskSampleSource

        source = DiskSampleSource(20, fns.leaving, worker_kind={kind!r})
        loader = DataLoader([source, BatchTransform(2)])
        for _ in loader.iterate(loader.init_state(0)):
            pass
    """)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "WorkerError: a function raised SystemExit in a worker, for sample 10" in err


def test_a_startup_cannot_end_the_program() -> None:
    for kind in KINDS:
        task = FillTask(fns.fill_item, range(N), fns.leave)
        executor = Executor(
            task, [("y", np.int32, ())], BATCH, workers=1, worker_kind=kind
        )
        with pytest.raises(WorkerError, match="SystemExit in a worker, during startup"):
            executor.submit([1]).wait(60)
        executor.close()


def test_stop_iteration_of_a_startup_is_an_error() -> None:
    for kind in KINDS:
        task = FillTask(fns.fill_item, range(N), fns.stop)
        executor = Executor(
            task, [("y", np.int32, ())], BATCH, workers=1, worker_kind=kind
        )
        with pytest.raises(RuntimeError, match="StopIteration during startup"):
            executor.submit([1]).wait(60)
        executor.close()


def test_a_signal_to_a_worker_does_not_stop_the_parent() -> None:
    source = DiskSampleSource(
        N, fns.signalled, SPEC, "sequential", worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(BATCH)], prefetch=1)
    iterator = loader.iterate(loader.init_state(0))
    next(iterator)
    (pid,) = source.pids
    for _ in range(20):  # it is idle or prefetches a batch
        os.kill(pid, signal.SIGINT)
        time.sleep(0.01)
    next(iterator)
    assert source.pids == [pid]
    with pytest.raises(WorkerError, match="KeyboardInterrupt in a worker, for sample"):
        list(iterator)


def test_skipping_retries_after_a_signal(tmp_path: Path) -> None:
    function = fns.SignalledOnce(tmp_path / "signalled")
    source = DiskSampleSource(N, function, SPEC, "sequential", worker_kind="process")
    loader = DataLoader([source, BatchTransform(BATCH)], on_error="skip")
    found = [np.asarray(b["y"]) for b, _ in loader.iterate(loader.init_state(0))]
    assert np.concatenate(found).tolist() == list(range(N))
    assert loader.skipped == {}
    assert (tmp_path / "signalled").exists()


def test_ctrl_c_in_the_main_thread_is_a_keyboard_interrupt() -> None:
    def ctrl_c(*_: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)

    numbers = {"y": np.arange(N, dtype=np.int32)}
    source = ArraySampleSource(numbers, "sequential")
    callback = HostCallbackTransform(ctrl_c)
    loader = DataLoader([source, BatchTransform(BATCH), callback])
    with pytest.raises(KeyboardInterrupt):
        next(loader.iterate(loader.init_state(0)))
    with pytest.raises(KeyboardInterrupt):
        DiskSampleSource(N, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        DataLoader([source, PythonMapTransform(ctrl_c), BatchTransform(BATCH)])
