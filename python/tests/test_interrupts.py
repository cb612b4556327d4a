"""Ctrl-C in the middle of a loop that continues afterwards."""

from __future__ import annotations

import itertools
import signal
import time

import pytest
from conftest import Python

GOING_ON = """
    import signal
    import jax, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    from millstream import ArraySampleSource, BatchTransform, DataLoader
    from millstream import DevicePutTransform, DiskSampleSource

    N = 10
    data = {"x": np.arange(N, dtype=np.int32)}
    source = ArraySampleSource(data)
    batch = BatchTransform(4)
    mesh = jax.make_mesh((1,), ("rows",))
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    if "KIND" == "workers":
        source = DiskSampleSource(N, lambda i: {"x": np.int32(i)})
    put = [DevicePutTransform(sharding)] if "KIND" == "sharded" else []
    loader = DataLoader([source, batch, *put])

    armed = False
    interrupts = 0

    def interrupt(number, frame):
        if armed:
            raise KeyboardInterrupt

    def check(before, delivered):
        value, mask = delivered
        samples = loader.which_samples(before)
        assert (np.asarray(mask) == (samples >= 0)).all(), (samples, mask)
        assert (np.asarray(value["x"]) == np.maximum(samples, 0)).all()

    signal.signal(signal.SIGINT, interrupt)
    steps = 10**9
    iterator = loader.iterate(loader.init_state(0), steps=steps, progress=PROGRESS)
    for _ in range(5):
        check(iterator.state, next(iterator))
    print("started", flush=True)
    while interrupts < 200:
        before = iterator.state
        delivered = None
        try:
            armed = True
            delivered = next(iterator)
            armed = False
        except KeyboardInterrupt:
            armed = False
            interrupts += 1
        if delivered is not None:
            check(before, delivered)
        done = iterator.state.epoch * loader.steps_per_epoch + iterator.state.step
        assert len(iterator) == steps - done, (len(iterator), done)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("done", flush=True)
"""


@pytest.mark.parametrize("kind", ["memory", "workers", "sharded", "progress"])
def test_an_iterator_continues_after_ctrl_c(python: Python, kind: str) -> None:
    code = GOING_ON.replace("KIND", kind).replace("PROGRESS", str(kind == "progress"))
    process = python.start(code, MILLSTREAM_PROGRESS="0")
    assert process.stdout is not None
    if process.stdout.readline() != "started\n":
        pytest.fail(process.communicate()[1])
    for pause in itertools.cycle((0.0005, 0.0011, 0.0017)):
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
    assert python.finished(process) == "done\n"
