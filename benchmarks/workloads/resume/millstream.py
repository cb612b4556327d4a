"""Millstream's `restore` of a state in the middle of the epoch."""

import jax
import millstream as ms
import numpy as np

from dataset import BATCH
from workloads.resume.workload import SAMPLES

STEP = SAMPLES // BATCH // 2


def loader_of(rows: np.ndarray) -> ms.DataLoader:
    """A loader over rows that are never copied."""
    return ms.DataLoader(
        pipeline=[
            ms.ArraySampleSource({"row": rows}, ordering="shuffle"),
            ms.BatchTransform(batch_size=BATCH),
        ]
    )


def saved(rows: np.ndarray) -> bytes:
    """The saved state of a run that reached the middle of its epoch."""
    loader = loader_of(rows)
    state = loader.init_state(0)
    words = np.array(state.words)
    words[4] = len(rows) // BATCH // 2
    return loader.save(ms.LoaderState(words), format="bytes")


_saved: list[bytes] = []


def first_batch(rows: np.ndarray) -> tuple[int, jax.Array]:
    """Builds a loader and restores a state; returns its step and its next batch."""
    if not _saved:
        _saved.append(saved(rows))
    loader = loader_of(rows)
    state = loader.restore(_saved[0])
    batch, _ = next(loader.iterate(state))
    return state.step, batch["row"]
