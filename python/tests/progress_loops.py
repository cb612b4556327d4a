"""Loops with a progress bar, for tests that run them in other processes."""

from __future__ import annotations

import time

import jax
import numpy as np
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    HostCallbackTransform,
)


def slowly(batch, mask):
    time.sleep(0.02)
    return batch


def loader(seconds: float = 0.0) -> DataLoader:
    """Returns a loader of 5 batches, or of as many as take this time."""
    count = max(5, int(seconds / 0.02))
    rows = {"x": np.arange(4 * count - 1, dtype=np.int32)}
    slow = [HostCallbackTransform(slowly)] if seconds else []
    return DataLoader([ArraySampleSource(rows), BatchTransform(4), *slow])


def body(carry, batch, mask):
    return carry + 1, (batch["x"], mask)


def stacked(batches):
    return jax.tree.map(lambda *parts: np.stack(parts), *batches)


def compare() -> None:
    """Checks that loops with progress deliver the same batches as loops without."""
    data = loader()
    state = data.init_state(3)
    steps = data.steps_per_epoch
    wanted = stacked([(b["x"], m) for b, m in data.run(state, epochs=2)])
    for found in (
        [(b["x"], m) for b, m in data.run(state, epochs=2, progress=True)],
        [(b["x"], m) for b, m in data.iterate(state, steps=2 * steps, progress=True)],
    ):
        jax.tree.map(np.testing.assert_array_equal, stacked(found), wanted)
    _, count, scanned = data.scan_epoch(state, 0, body, steps=2 * steps, progress=True)
    assert count == 2 * steps
    jax.tree.map(np.testing.assert_array_equal, scanned, wanted)
