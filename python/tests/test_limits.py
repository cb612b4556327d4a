"""Limits of the system: errors say what was requested and what to do."""

from __future__ import annotations

import pytest
from conftest import Python


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("thread", "cannot start the first of 3 worker threads: "),
        ("process", "cannot start the thread for 3 worker processes: "),
    ],
)
def test_no_thread_is_left(python: Python, kind: str, what: str) -> None:
    code = f"""
        import os, resource
        import jax
        import numpy as np
        from millstream import ArraySampleSource, BatchTransform, DataLoader
        from millstream import PythonMapTransform

        def same(sample):
            return sample

        jax.block_until_ready(jax.numpy.zeros(3))
        if os.geteuid() == 0:
            os.setuid(65534)  # the limit is not root's
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        try:
            loader = DataLoader([
                ArraySampleSource(np.zeros((10, 4), np.float32)),
                PythonMapTransform(same, workers=3, worker_kind={kind!r}),
                BatchTransform(2),
            ])
            next(loader.iterate(loader.init_state(0)))
        except RuntimeError as error:
            print(error)
    """
    message = python.run(code)
    assert what in message
    assert "ulimit -u" in message
    assert "fewer workers=" in message


def test_no_memory_is_left(python: Python) -> None:
    code = """
        import resource
        import numpy as np
        from millstream import ArraySampleSource, BatchTransform, DataLoader
        rows = np.zeros((10, 1000, 1000), np.float32)
        loader = DataLoader([ArraySampleSource(rows), BatchTransform(300)])
        with open("/proc/self/status") as status:
            taken = next(int(s.split()[1]) for s in status if s.startswith("VmSize:"))
        limit = (taken << 10) + (1 << 29)  # a batch needs more than twice as much
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        try:
            next(loader.iterate(loader.init_state(0)))
        except MemoryError as error:
            print(error)
    """
    message = python.run(code)
    assert message.startswith("cannot allocate 12")
    assert "bytes for a batch of 300 rows" in message
    assert "smaller batch_size=" in message
