"""Files larger than memory: opening needs no memory, reading needs little."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROW = 16 << 10
ROWS = 1 << 17  # 2 GiB


def sparse(path: Path, shape: tuple[int, ...], dtype: str) -> Path:
    """Writes an .npy file of zeros that takes no disk space."""
    values = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
    assert values.shape == shape
    del values
    return path


def test_a_source_of_1e8_rows_opens_at_once_without_memory(
    tmp_path: Path, python: Any
) -> None:
    path = sparse(tmp_path / "x.npy", (10**8, 64), "uint8")
    code = f"""
        import time
        from millstream import BatchTransform, DataLoader, NpySource

        def anonymous():
            lines = open("/proc/self/status").read().splitlines()
            return int(next(x for x in lines if x.startswith("RssAnon")).split()[1])

        NpySource({str(path)!r})  # imports
        before, times = anonymous(), []
        sources = []
        for _ in range(20):
            start = time.perf_counter()
            sources.append(NpySource({str(path)!r}))
            times.append(time.perf_counter() - start)
        assert len(sources[-1]) == 10**8
        assert anonymous() - before < 1024, (before, anonymous())
        print("opened in", min(times) * 1e6, "us")
        assert min(times) < 1e-3, times
        loader = DataLoader([sources[0], BatchTransform(128)])
        batch, _, mask = loader.next_batch(loader.init_state(0))
        assert batch.shape == (128, 64) and not batch.any() and mask.all()
    """
    print(python.run(code))


CODE = """
    import resource, threading, time
    import jax
    from millstream import BatchTransform, DataLoader, NpySource

    def status(what):
        lines = open("/proc/self/status").read().splitlines()
        return int(next(x for x in lines if x.startswith(what)).split()[1]) >> 10

    peak, done = 0, threading.Event()

    def watch():
        global peak
        while not done.wait(0.02):
            peak = max(peak, status("RssAnon"))

    loader = DataLoader([NpySource({path!r}), BatchTransform(128)])
    state = loader.init_state(0)

    def total(carry, batch, mask):
        return carry + batch.sum() + mask.sum(), None

    def run():
        if {jit}:
            return loader.scan_epoch(state, 0.0, total, steps=steps)[1]
        count = 0
        for batch, mask in loader.iterate(state, steps=steps):
            count += int(mask.sum())
        return count

    steps = 8
    run()  # compiles, and starts threads
    start, limit = status("RssAnon"), status("VmData") + 256
    resource.setrlimit(resource.RLIMIT_DATA, (limit << 20, limit << 20))
    try:
        bytearray(512 << 20)
    except MemoryError:
        pass
    else:
        raise AssertionError("the limit does not hold")
    threading.Thread(target=watch, daemon=True).start()
    steps = loader.steps_per_epoch
    began = time.perf_counter()
    assert int(run()) == {rows}
    seconds = time.perf_counter() - began
    done.set()
    print(f"RssAnon {{start}} MiB before, {{peak}} MiB at most; {{seconds:.1f}} s")
    assert peak - start < 128, (start, peak)
"""


@pytest.mark.parametrize("where", ["jit", "loop"])
def test_a_file_larger_than_the_memory_limit(
    tmp_path: Path, python: Any, where: str
) -> None:
    if shutil.disk_usage(tmp_path).free < 3 << 30:
        pytest.skip("there are less than 3 GiB on this file system")
    path = sparse(tmp_path / "x.npy", (ROWS, ROW // 4), "float32")
    assert os.stat(path).st_size > 2 << 30
    print(python.run(CODE.format(path=str(path), jit=where == "jit", rows=ROWS)))
