"""Workers: what they import, when they stop, and that nothing leaks."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
import pytest
import worker_functions as fns
from conftest import Python
from millstream import BatchTransform, DataLoader, DiskSampleSource

PATIENCE = 60.0


def until(what: Callable[[], bool], message: str = "it did not happen") -> None:
    """Waits until a condition holds. Fails after a timeout."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


def alive(pids: list[int]) -> list[int]:
    """Returns the running processes, without zombies."""
    found = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            pass
    return found


# What workers import.


def test_a_worker_does_not_import_jax_or_run_the_main_program() -> None:
    source = DiskSampleSource(
        4, fns.about_the_worker, None, "sequential", worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(4)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert np.asarray(batch["jax"]).tolist() == [False] * 4
    assert batch["platforms"] == ["cpu"] * 4
    assert batch["argv"] == [sys.argv] * 4
    assert [Path(name).name for name in batch["main"]] == ["worker.py"] * 4
    assert np.asarray(batch["pid"]).tolist() == source.pids * 4
    assert np.asarray(batch["nice"]).tolist() == [min(os.nice(0) + 5, 19)] * 4


UNGUARDED = """
import os, sys
import numpy as np
from millstream import BatchTransform, DataLoader, DiskSampleSource

print("the program runs")
scale = 3

def sample(i):
    return {"x": np.float32(i * scale), "main": __name__ == "__main__"}

sources = [
    DiskSampleSource(6, sample, None, "sequential", workers=2, worker_kind="process"),
    DiskSampleSource(6, lambda i: {"x": i - 1}, None, "sequential",
                     worker_kind="process"),
]
for source in sources:
    loader = DataLoader([source, BatchTransform(6)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    print([int(x) for x in batch["x"]])
"""


def test_a_script_without_a_guard_runs_once(python: Python) -> None:
    script = python.folder / "program.py"
    script.write_text(UNGUARDED)
    process = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=python.environment(),
        cwd=python.folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == [
        "the program runs",
        "[0, 3, 6, 9, 12, 15]",
        "[-1, 0, 1, 2, 3, 4]",
    ]


def test_lambdas_and_closures_are_pickled_by_value() -> None:
    scale = 5
    source = DiskSampleSource(
        4, lambda i: i * scale, None, "sequential", worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(4)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert np.asarray(batch).tolist() == [0, 5, 10, 15]


def test_without_cloudpickle_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    message = r"a module, or install millstream\[workers\] \(cloudpickle\)"
    with pytest.raises(TypeError, match=message):
        DiskSampleSource(4, lambda i: i, worker_kind="process")
    monkeypatch.setattr(fns.plain, "__module__", "__main__")
    with pytest.raises(TypeError, match="is defined in __main__.*" + message):
        DiskSampleSource(4, fns.plain, worker_kind="process")
    monkeypatch.undo()
    source = DiskSampleSource(4, fns.plain, worker_kind="process")
    assert source.pids == []


def test_an_object_that_cannot_be_pickled_is_named() -> None:
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be sent to worker processes.*lock"):
        DiskSampleSource(4, lambda i: lock and i, worker_kind="process")


# When workers stop.


def test_deleting_a_loader_stops_its_workers() -> None:
    source = DiskSampleSource(40, fns.plain, workers=2, worker_kind="process")
    assert source.pids == []  # they start with the first request
    loader = DataLoader([source, BatchTransform(4)])
    next(loader.iterate(loader.init_state(0)))
    pids = source.pids
    assert len(pids) == 2
    assert alive(pids) == pids
    threads = psutil.Process().num_threads()
    del loader, source
    gc.collect()
    until(lambda: alive(pids) == [])
    until(lambda: psutil.Process().num_threads() < threads)


def test_deleting_a_loader_while_a_function_runs(tmp_path: Path) -> None:
    """The workers stop although the function would still run for a long time."""
    source = DiskSampleSource(
        40, fns.Gated(tmp_path / "never"), None, "sequential", worker_kind="process"
    )
    loader = DataLoader([source, BatchTransform(4)])
    next(loader.iterate(loader.init_state(0)))  # and the next batch is being made
    pids = source.pids
    del loader
    gc.collect()
    del source
    until(lambda: alive(pids) == [])


def test_a_function_may_collect_the_loader_that_waits_for_it(python: Python) -> None:
    """The garbage collector may delete the loader in a worker thread."""
    told = python.run("""
        import gc, threading
        from millstream import BatchTransform, DataLoader, DiskSampleSource

        go, collected = threading.Event(), threading.Event()

        def sample(i):
            if i >= 4:
                assert go.wait(60)
                gc.collect()
                collected.set()
            return {"i": i}

        gc.disable()
        source = DiskSampleSource(40, sample, None, "sequential", workers=1)
        ring = [DataLoader([source, BatchTransform(4)])]
        ring.append(ring)
        next(ring[0].iterate(ring[0].init_state(0)))  # and the next batch is being made
        del ring, source
        go.set()
        print(collected.wait(60))
    """)
    assert told == "True\n"


def test_ctrl_c_reaches_a_loop_that_waits_for_a_function() -> None:
    for kind in ("thread", "process"):
        source = DiskSampleSource(
            8, fns.Stalling(1, 3), fns_spec(), "sequential", worker_kind=kind
        )
        loader = DataLoader([source, BatchTransform(4)])
        calls: list[int] = []

        def handler(number: int, frame: Any, calls: list[int] = calls) -> None:
            calls.append(number)
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                next(loader.iterate(loader.init_state(0)))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert calls
        assert loader.delivered == 0


def fns_spec() -> Any:
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype), fns.plain(0)
    )


LIVING = """
    import os, sys, threading, time
    import worker_functions as fns
    from millstream import BatchTransform, DataLoader, DiskSampleSource

    source = DiskSampleSource(400, fns.Gated(fns.Path("never")), None, "sequential",
                              workers=3, worker_kind=KIND)
    loader = DataLoader([source, BatchTransform(4)])
    iterator = loader.iterate(loader.init_state(0))
    next(iterator)   # the batch after it is in the function now
    print(*source.pids, flush=True)
"""

ENDS = {
    "end": ("", 0),
    "exit": ("sys.exit(5)", 5),
    "raise": ("raise ValueError('of the program')", 1),
    "os._exit": ("os._exit(6)", 6),
    "thread": ("threading.Thread(target=time.sleep, args=(0.1,)).start()", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_workers_stop_with_the_program(python: Python, end: str) -> None:
    code, status = ENDS[end]
    whole = textwrap.dedent(LIVING).replace("KIND", "'process'") + code
    process = python.start(whole)
    out, err = process.communicate(timeout=120)
    assert process.returncode == status, err
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 3
    until(lambda: not alive(pids), "workers outlive the program")
    assert end == "raise" or err == ""


def test_threads_in_a_function_do_not_block_the_exit(python: Python) -> None:
    code = textwrap.dedent(LIVING).replace("KIND", "'thread'")
    assert python.run(code) == "\n"


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def test_workers_stop_when_the_program_is_killed(python: Python) -> None:
    before = shared_memory()
    code = textwrap.dedent(LIVING).replace("KIND", "'process'")
    process = python.start(code + "time.sleep(600)")
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 3
    assert alive(pids) == pids
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    until(lambda: not alive(pids), "workers outlive the program")
    assert not [name for name in shared_memory() - before if "millstream" in name]


# Leaks.

EPOCHS = """
    import gc, os, pathlib
    import worker_functions as fns
    from millstream import BatchTransform, DataLoader, DiskSampleSource

    source = DiskSampleSource(4, fns.plain, workers=2, worker_kind=KIND)
    loader = DataLoader([source, BatchTransform(2)])

    def counts():
        gc.collect()
        with open("/proc/self/status") as file:
            lines = dict(line.split(":", 1) for line in file)
        return (
            len(os.listdir("/proc/self/fd")),
            int(lines["Threads"]),
            int(lines["VmRSS"].split()[0]) // 1024,
            len(pathlib.Path("/proc/self/maps").read_text().splitlines()),
        )

    def epochs(state, count):
        for epoch in range(count):
            iterator = loader.iterate(state)
            for batch, mask in iterator:
                pass
            state = iterator.state
        return state

    state = epochs(loader.init_state(0), 1000)
    before = counts()
    state = epochs(state, 9000)
    assert (state.epoch, state.step) == (10_000, 0)
    after = counts()
    print(before, after)
    assert after[0] <= before[0], "descriptors"
    assert after[1] <= before[1], "threads"
    assert after[2] <= before[2] + 24, "memory"
    assert after[3] <= before[3] + 32, "maps"
"""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_ten_thousand_epochs_do_not_leak(python: Python, kind: str) -> None:
    python.run(textwrap.dedent(EPOCHS).replace("KIND", repr(kind)))


def test_dozens_of_sources_do_not_leak() -> None:
    process = psutil.Process()

    def make(count: int, kind: str) -> None:
        for _ in range(count):
            source = DiskSampleSource(8, fns.plain, worker_kind=kind)
            loader = DataLoader([source, BatchTransform(4)])
            next(loader.iterate(loader.init_state(0)))

    make(1, "process")
    make(20, "thread")
    gc.collect()
    before = process.num_fds(), process.num_threads(), len(process.children())
    make(3, "process")
    make(60, "thread")
    gc.collect()
    after = process.num_fds(), process.num_threads(), len(process.children())
    assert all(b <= a for a, b in zip(before, after, strict=True)), (before, after)


@pytest.mark.filterwarnings("ignore:.*Keep fewer batches:ResourceWarning")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_keeping_every_batch_never_hangs(kind: str) -> None:
    source = DiskSampleSource(1200, fns.wide, workers=2, worker_kind=kind)
    for batch_size in (4, 300):  # by the jitted call, and from slots
        loader = DataLoader([source, BatchTransform(batch_size)], prefetch=2)
        state = loader.init_state(0)
        steps = 120 if batch_size == 4 else 12
        kept = [np.asarray(b) for b, _ in loader.iterate(state, steps=steps)]
        words = np.asarray(state.words)
        for batch in kept:
            assert (batch[:, 7] == loader.which_samples(words)).all()
            words = loader._built.plan.next_state(words)
        assert len(kept) == steps


def ticks(pid: int) -> int:
    """Returns the CPU ticks that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_idle_workers_use_no_cpu() -> None:
    source = DiskSampleSource(
        40, fns.plain, workers=2, worker_kind="process", timeout=5.0
    )
    loader = DataLoader([source, BatchTransform(4)])
    list(loader.iterate(loader.init_state(0)))
    pids = source.pids

    def used() -> list[int]:
        return [ticks(pid) for pid in pids]

    def idle() -> bool:  # after the prefetched batches are made
        before = used()
        time.sleep(1.0)
        return all(b - a <= 1 for a, b in zip(before, used(), strict=True))

    until(idle, "the workers are busy with nothing")


SPAWNED = """
    import multiprocessing

    import numpy as np


    class Bad(Exception):
        pass


    class Number:
        def __init__(self, value):
            self.value = value


    def sample(index):
        if index == 9:
            raise Bad("sample nine")
        return {"y": Number(index * 10).value}


    def main():
        from millstream import BatchTransform, DataLoader, DiskSampleSource

        source = DiskSampleSource(
            12, sample, None, "sequential", workers=2, worker_kind="process"
        )
        loader = DataLoader([source, BatchTransform(4)])
        found = []
        try:
            for batch, _ in loader.iterate(loader.init_state(0)):
                found += np.asarray(batch["y"]).tolist()
        except Bad as error:
            print(found, error.args)


    if __name__ == "__main__":
        context = multiprocessing.get_context(METHOD)
        process = context.Process(target=main)
        process.start()
        process.join(100)
        print(process.exitcode)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_program_that_multiprocessing_started(
    method: str, python: Python
) -> None:
    built = python.folder / "program.py"
    built.write_text(textwrap.dedent(SPAWNED).replace("METHOD", repr(method)))
    done = subprocess.run(
        [sys.executable, str(built)],
        env=python.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith("[0, 10, 20, 30, 40, 50, 60, 70] ('sample nine',)")
    assert done.stdout.endswith("\n0\n"), done.stderr
