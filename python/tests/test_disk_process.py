"""Files that change while a process reads them, with signals and limits."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import Python
from millstream import BatchTransform, DataLoader, NpySource

HANDLERS = {
    "faulthandler enabled": ("", "faulthandler.enable()"),
    "faulthandler disabled": ("faulthandler.enable()", "faulthandler.disable()"),
    "the standard": ("", "signal.signal(signal.SIGBUS, signal.SIG_DFL)"),
    "none": ("", "signal.signal(signal.SIGBUS, signal.SIG_IGN)"),
    "a function": ("", "signal.signal(signal.SIGBUS, lambda *given: None)"),
}
"""What a program does to signals before it opens a file, and before the next one."""


@pytest.mark.parametrize("case", HANDLERS)
def test_a_file_that_shrinks_with_changed_signal_handlers(
    tmp_path: Path, python: Python, case: str
) -> None:
    np.save(tmp_path / "x.npy", np.ones((4000, 1000), np.uint8))
    before, after = HANDLERS[case]
    code = f"""
        import faulthandler, os, signal
        {before}
        from millstream import BatchTransform, DataLoader, NpySource
        loader = DataLoader([NpySource("x.npy"), BatchTransform(16)])
        state = loader.init_state(0)
        batches = loader.iterate(state)
        next(batches)
        {after}
        NpySource("x.npy")
        os.truncate("x.npy", 5000)

        def scan():
            loader.scan_epoch(state, 0, lambda carry, batch, mask: (carry, None))

        for run in (lambda: list(batches), scan):
            try:
                run()
            except OSError as error:
                print(error.filename, "has 5000 now" in str(error))
    """
    assert python.run(code) == "x.npy True\n" * 2


def test_a_program_continues_without_another_thread(
    tmp_path: Path, python: Python
) -> None:
    np.save(tmp_path / "x.npy", np.ones((512, 20_000), np.uint8))
    code = """
        import resource
        import jax
        from millstream import BatchTransform, DataLoader, NpySource
        loader = DataLoader([NpySource({"x": "x.npy"}), BatchTransform(16)])
        state = loader.init_state(0)
        step = jax.jit(lambda state: loader.next_batch(state)[0]["x"].sum())
        step = step.lower(state).compile()
        with open("/proc/self/status") as status:
            taken = next(int(s.split()[1]) for s in status if s.startswith("VmData:"))
        limit = (taken << 10) + (6 << 20)  # less than the stack of a thread
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        for _ in range(4):
            try:
                assert step(state) == 320_000
            except jax.errors.JaxRuntimeError as error:  # of its own results
                assert "RESOURCE_EXHAUSTED" in str(error), error
        resource.setrlimit(resource.RLIMIT_DATA, (-1, resource.RLIM_INFINITY))
        print([int(step(state)) for _ in range(4)])
    """
    assert python.run(code) == f"{[320_000] * 4}\n"


@pytest.mark.parametrize("prefetch", [0, 2, 4])
def test_a_file_that_is_restored_can_be_read_again(
    tmp_path: Path, prefetch: int
) -> None:
    path = tmp_path / "x.npy"
    rows = np.arange(64 * 1000, dtype=np.int32).reshape(64, 1000)
    np.save(path, rows)
    whole = path.read_bytes()
    source = NpySource(path, "sequential")
    loader = DataLoader([source, BatchTransform(4)], prefetch=prefetch)
    batches = loader.iterate(loader.init_state(0))
    next(batches)
    os.truncate(path, 5000)
    with pytest.raises(OSError, match="has 5000 now"):
        for _ in batches:
            pass
    path.write_bytes(whole)
    state = batches.state
    step = jax.jit(loader.next_batch)
    for at in range(state.step, 16):
        batch, state, _ = step(state)
        assert (np.asarray(batch) == rows[4 * at : 4 * at + 4]).all()


def test_one_truncated_shard_among_many(tmp_path: Path, python: Python) -> None:
    for shard in range(100):
        np.save(tmp_path / f"{shard:02}.npy", np.ones((10, 10), np.uint8))
    code = """
        import os, resource
        from millstream import NpySource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # not one for each
        path = f"{os.getcwd()}/99.npy"
        source = NpySource([f"{shard:02}.npy" for shard in range(100)])
        os.chdir("/")
        os.truncate(path, 200)
        try:
            source[999]
        except OSError as error:
            print(error.filename)
    """
    assert python.run(code) == "99.npy\n"
