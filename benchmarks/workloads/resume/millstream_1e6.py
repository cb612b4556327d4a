"""Millstream with 1e6 samples. The time to resume should not depend on their number."""

import jax
import numpy as np

from dataset import BATCH
from workloads.resume import millstream

SAMPLES = 10**6
STEP = SAMPLES // BATCH // 2


def first_batch(rows: np.ndarray) -> tuple[int, jax.Array]:
    """Builds a loader and restores a state; returns its step and its next batch."""
    return millstream.first_batch(rows[:SAMPLES])
