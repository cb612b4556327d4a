"""Workers that raise, die or time out: errors name the sample."""

from __future__ import annotations

import re
import threading
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DatasetSource,
    DiskSampleSource,
    PythonMapTransform,
    WorkerError,
    WorkerTimeout,
)
from millstream._delivery import jit
from test_functions import arrays_of
from walks import indexed, iterated, same_walk

N, BATCH = 12, 4
KINDS = ["thread", "process"]


def loader_of(fn: Any, kind: str, **more: Any) -> DataLoader:
    source = DiskSampleSource(N, fn, SPEC, "sequential", worker_kind=kind, **more)
    # A prefetch of one, so that samples of the next epoch are not made too early.
    return DataLoader([source, BatchTransform(BATCH)], prefetch=1)


SPEC = {
    "x": jax.ShapeDtypeStruct((3,), np.int32),
    "y": jax.ShapeDtypeStruct((), np.int32),
    "z": jax.ShapeDtypeStruct((2, 2), np.float32),
}


def at_step(loader: DataLoader, step: int) -> Any:
    words = np.asarray(loader.init_state(0).words).copy()
    words[4] = step
    return words


def full_text(error: BaseException) -> str:
    """Returns the whole text of an error."""
    return "".join(traceback.format_exception(error))


def still_usable(loader: DataLoader) -> None:
    """Checks that the loader still delivers other batches, inside and outside jit."""
    for step in (2, 0):
        words = at_step(loader, step)
        expected = [fns.plain(i)["y"] for i in range(step * BATCH, (step + 1) * BATCH)]
        batch, _ = next(loader.iterate(words))
        assert np.asarray(batch["y"]).tolist() == expected
        batch, _, _ = jax.jit(loader.next_batch)(words)
        assert np.asarray(batch["y"]).tolist() == expected


def closed_by_a_stall(loader: DataLoader) -> None:
    """Checks that later requests fail, and that the error says what to do."""
    message = (
        r"the worker pool was closed, because sample 6 has taken more than 500 ms in "
        r"thread \d+ and a thread cannot be stopped\. Build the source .* again, or "
        r'use worker_kind="process"'
    )
    fresh = DataLoader([loader._built.head, BatchTransform(BATCH)])
    for which in (loader, fresh):
        for _ in range(2):
            with pytest.raises(WorkerTimeout, match=message):
                which.next_batch(at_step(which, 0))


# Exceptions.


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_keeps_its_type_and_names_the_sample(kind: str) -> None:
    loader = loader_of(fns.raising, kind, workers=2)
    words = at_step(loader, 1)

    def by_iterate() -> None:
        iterator = loader.iterate(loader.init_state(0))
        next(iterator)
        next(iterator)

    def by_next_batch() -> None:
        loader.next_batch(words)

    def by_scan() -> None:
        loader.scan_epoch(loader.init_state(0), 0, lambda c, b, m: (c + 1, None))

    for run in (by_iterate, by_next_batch, by_scan, by_iterate):
        with pytest.raises(fns.OwnError, match="sample six is bad") as caught:
            run()
        assert caught.value.value == 60
        text = full_text(caught.value)
        assert "raised for sample 6" in text
        assert "in raising" in text  # the frame of the function
        if kind == "process":
            assert re.search(r"in worker process \d+:", text)
    still_usable(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_inside_the_users_jit(kind: str) -> None:
    loader = loader_of(fns.raising, kind)
    step = jax.jit(loader.next_batch)
    assert loader.last_error is None
    with pytest.raises(jit.FAILURES, match="sample six is bad") as caught:
        jax.block_until_ready(step(at_step(loader, 1)))
    assert "OwnError" in str(caught.value)
    error = loader.last_error
    assert isinstance(error, fns.OwnError)
    assert error.value == 60
    assert "raised for sample 6" in full_text(error)

    def run(state: Any) -> Any:
        return loader.scan_epoch(state, 0, lambda c, b, m: (c + b["y"].sum(), None))

    with pytest.raises(jit.FAILURES, match="sample six is bad"):
        jax.block_until_ready(jax.jit(run)(loader.init_state(0)))
    still_usable(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_that_cannot_be_pickled(kind: str) -> None:
    loader = loader_of(fns.raising_unpicklable, kind)
    expected = fns.Unpicklable if kind == "thread" else WorkerError
    with pytest.raises(expected, match="cannot") as caught:
        loader.next_batch(at_step(loader, 1))
    text = full_text(caught.value)
    assert "Unpicklable" in text
    assert "in raising_unpicklable" in text
    assert "raised for sample 6" in text
    still_usable(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_exits_and_interrupts_of_a_function(kind: str) -> None:
    loader = loader_of(fns.exiting, kind)
    message = "SystemExit in a worker, for sample 6: the function left"
    with pytest.raises(WorkerError, match=message) as left:
        loader.next_batch(at_step(loader, 1))
    assert isinstance(left.value.__cause__, SystemExit)
    still_usable(loader)
    loader = loader_of(fns.interrupting, kind)
    message = "KeyboardInterrupt in a worker, for sample 6: of the function's own"
    with pytest.raises(WorkerError, match=message) as stopped:
        loader.next_batch(at_step(loader, 1))
    assert isinstance(stopped.value.__cause__, KeyboardInterrupt)
    still_usable(loader)


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_of_a_map(kind: str) -> None:
    data = {"y": np.arange(1, N + 1, dtype=np.int32)}
    stage = PythonMapTransform(fns.failing_map, worker_kind=kind)
    source = ArraySampleSource(data, "sequential")
    loader = DataLoader([source, stage, BatchTransform(BATCH)])
    for _ in range(2):
        with pytest.raises(fns.OwnError, match="the map fails") as caught:
            loader.next_batch(at_step(loader, 1))
        assert "raised for sample 6" in full_text(caught.value)
    batch, _, _ = loader.next_batch(at_step(loader, 2))
    assert np.asarray(batch["y"]).tolist() == [9, 10, 11, 12]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_getitems_names_all_samples(kind: str) -> None:
    for batch, listed in ((4, "4, 5, 6, 7"), (N, "0, 1, 2, 3, 4, 5, 6, 7, ...")):
        source = DatasetSource(
            fns.LotsThatRaise(N), SPEC, "sequential", worker_kind=kind
        )
        loader = DataLoader([source, BatchTransform(batch)], prefetch=1)
        with pytest.raises(fns.OwnError, match="sample six is bad") as caught:
            list(loader.iterate(loader.init_state(0)))
        assert f"raised for one of samples [{listed}]" in full_text(caught.value)
    with pytest.raises(jit.FAILURES, match="sample six is bad"):
        jax.block_until_ready(jax.jit(loader.next_batch)(loader.init_state(0)))


# Deaths.

ENDS = {
    "kill": r"was killed by signal 9 \(Killed\)",
    "segv": r"was killed by signal 11 \(Segmentation fault\)",
    "exit": "exited with status 3",
}


@pytest.mark.parametrize("how", ENDS)
def test_a_worker_that_dies_is_named_and_the_loader_stays_usable(how: str) -> None:
    loader = loader_of(fns.Dying(how), "process", workers=2)
    message = rf"worker process \d+ {ENDS[how]} while it made sample 6"
    with pytest.raises(WorkerError, match=message):
        loader.next_batch(at_step(loader, 1))
    with pytest.raises(WorkerError, match=message):
        loader.scan_epoch(loader.init_state(0), 0, lambda c, b, m: (c, None))
    with pytest.raises(jit.FAILURES, match=message):
        jax.block_until_ready(jax.jit(loader.next_batch)(at_step(loader, 1)))
    assert isinstance(loader.last_error, WorkerError)
    still_usable(loader)


@pytest.mark.parametrize("how", ENDS)
def test_dead_workers_are_replaced(how: str, tmp_path: Path) -> None:
    fn = fns.Dying(how, tmp_path / "died")
    loader = loader_of(fn, "process", workers=2, restart_workers=1)
    state = loader.init_state(0)
    expected = indexed(loader, arrays_of(fns.plain, N), state, 6)
    same_walk(iterated(loader, state, 6), expected)
    assert (tmp_path / "died").exists()


def test_workers_are_replaced_up_to_the_limit() -> None:
    loader = loader_of(fns.Dying("kill"), "process", restart_workers=2)
    with pytest.raises(WorkerError, match=r"signal 9 .* while it made sample 6"):
        loader.next_batch(at_step(loader, 1))
    still_usable(loader)


def test_a_worker_killed_from_outside_while_it_is_idle() -> None:
    import psutil

    loader = loader_of(fns.plain, "process", workers=2, restart_workers=2)
    state = loader.init_state(0)
    expected = iterated(loader, state, 3)
    source: Any = loader._built.head
    before = source.pids
    assert len(before) == 2
    for pid in before:
        psutil.Process(pid).kill()
    for _ in range(1000):
        if not set(before) & set(source.pids):
            break
        threading.Event().wait(0.01)
    same_walk(iterated(loader, state, 3), expected)
    assert not set(before) & set(source.pids)


def test_a_worker_that_cannot_start_is_an_error() -> None:
    loader = loader_of(fns.DeadOnArrival("exit"), "process", workers=2)
    message = r"worker process \d+ exited with status 9 before it made its first sample"
    for _ in range(2):
        with pytest.raises(WorkerError, match=message):
            loader.next_batch(loader.init_state(0))
    more = loader_of(fns.DeadOnArrival("exit"), "process", restart_workers=5)
    with pytest.raises(WorkerError, match=message):
        more.next_batch(more.init_state(0))


def test_an_import_error_in_a_worker_is_raised() -> None:
    loader = loader_of(fns.DeadOnArrival("raise"), "process", workers=2)
    for step in (0, 1, 2, 0):
        with pytest.raises(ImportError, match="this worker lacks") as caught:
            loader.next_batch(at_step(loader, step))
        assert "in _arrive" in full_text(caught.value)


# Timeouts.


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_shows_the_stack(kind: str, tmp_path: Path) -> None:
    fn = fns.Stalling(6, 20, tmp_path / "stalled")
    loader = loader_of(fn, kind, workers=2, timeout=0.5)
    where = "worker process" if kind == "process" else "thread"
    message = rf"sample 6 has taken more than 500 ms in {where} \d+"
    with pytest.raises(WorkerTimeout, match=message) as caught:
        loader.next_batch(at_step(loader, 1))
    assert "dreams_of_sheep" in str(caught.value)
    assert isinstance(caught.value, TimeoutError)
    if kind == "thread":
        closed_by_a_stall(loader)
        return
    still_usable(loader)
    # The function stalls only once, so the batch now works.
    batch, _, _ = loader.next_batch(at_step(loader, 1))
    assert np.asarray(batch["y"]).tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_a_timeout_inside_jit(kind: str, tmp_path: Path) -> None:
    fn = fns.Stalling(6, 20, tmp_path / "stalled")
    loader = loader_of(fn, kind, timeout=0.5)
    with pytest.raises(jit.FAILURES, match="sample 6 has taken more than 500 ms"):
        jax.block_until_ready(jax.jit(loader.next_batch)(at_step(loader, 1)))
    assert isinstance(loader.last_error, WorkerTimeout)
    if kind == "thread":
        closed_by_a_stall(loader)
    else:
        still_usable(loader)


def test_a_process_that_times_out_is_replaced(tmp_path: Path) -> None:
    fn = fns.Stalling(6, 600, tmp_path / "stalled")
    loader = loader_of(fn, "process", timeout=0.5, restart_workers=1)
    state = loader.init_state(0)
    expected = indexed(loader, arrays_of(fns.plain, N), state, 3)
    same_walk(iterated(loader, state, 3), expected)
    assert (tmp_path / "stalled").exists()


STALLED = """
    import gc, threading, time
    import jax, numpy as np
    from millstream import (
        ArraySampleSource, BatchTransform, DataLoader, PythonMapTransform,
        WorkerTimeout, fill_source,
    )

    wake, awake = threading.Event(), threading.Event()

    def stall(sample):
        wake.wait(60)
        sample["x"] += 1
        assert (sample["x"] == 2).all()
        awake.set()
        return sample

    def stall_in_place(item, arrays, seed):
        wake.wait(60)
        arrays["x"][:] = 7
        assert (arrays["x"] == 7).all()
        awake.set()

    ones = {"x": np.ones((8, 100_000), np.float32)}
    spec = {"x": jax.ShapeDtypeStruct((100_000,), np.float32)}
    if MAPS:
        stage = PythonMapTransform(stall, spec, timeout=0.2)
        stages = [ArraySampleSource(ones, "sequential"), stage]
    else:
        stages = [fill_source(stall_in_place, range(8), spec, timeout=0.2)]
    loader = DataLoader([*stages, BatchTransform(4)])
    try:
        next(loader.iterate(loader.init_state(0)))
    except WorkerTimeout as error:
        print("has taken more than 200 ms" in str(error))
"""


@pytest.mark.parametrize("end", ["loader", "program"])
@pytest.mark.parametrize("maps", [True, False])
def test_a_thread_that_wakes_up_after_a_timeout_can_write_its_arrays(
    python: Any, end: str, maps: bool
) -> None:
    """Also after the loader is deleted, and while the interpreter exits."""
    code = (
        STALLED.replace("MAPS", str(maps))
        + """
    if END == "loader":
        del loader, stages
        gc.collect()
        filler = [np.zeros(400_000, np.float32) for _ in range(40)]
        wake.set()
        print(awake.wait(60), all((f == 0).all() for f in filler))
    else:
        threading.Timer(0.5, wake.set).start()
        print("end")
""".replace("END", repr(end))
    )
    expected = "True\nTrue True\n" if end == "loader" else "True\nend\n"
    assert python.run(code) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_timeout_is_per_sample(kind: str) -> None:
    """The batch takes longer than the timeout, but no sample does."""
    source = DiskSampleSource(
        8, fns.unhurried, None, "sequential", worker_kind=kind, timeout=1.0
    )
    loader = DataLoader([source, BatchTransform(8)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert np.asarray(batch["y"]).tolist() == list(range(1, 9))


def test_getitems_gets_the_timeout_of_all_its_samples() -> None:
    """In processes. A C++ test of ThreadWorkerPool covers threads."""

    def loader_with(timeout: float) -> DataLoader:
        data = fns.LotsThatWait(N)
        source = DatasetSource(
            data, SPEC, "sequential", worker_kind="process", timeout=timeout
        )
        return DataLoader([source, BatchTransform(BATCH)], prefetch=0)

    loader = loader_with(0.5)
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert np.asarray(batch["y"]).tolist() == [1, 2, 3, 4]
    loader = loader_with(0.1)
    message = r"^one of samples \[8, 9, 10, 11\] has taken more than 400 ms in "
    with pytest.raises(WorkerTimeout, match=message):
        loader.next_batch(at_step(loader, 2))


# Closing.


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_source_is_an_error(kind: str) -> None:
    loader = loader_of(fns.plain, kind)
    loader.next_batch(loader.init_state(0))
    source: Any = loader._built.head
    source.close()
    assert source.pids == []
    source.close()
    fresh = DataLoader([source, BatchTransform(BATCH)])
    with pytest.raises(RuntimeError, match="the worker pool was closed"):
        fresh.next_batch(fresh.init_state(0))
