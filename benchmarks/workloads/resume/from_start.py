"""Millstream at step 0. Does not include restoring a state."""

import jax
import numpy as np

from workloads.resume.millstream import loader_of

STEP = 0


def first_batch(rows: np.ndarray) -> tuple[int, jax.Array]:
    """Builds a loader; returns step 0 and the first batch."""
    loader = loader_of(rows)
    state = loader.init_state(0)
    batch, _ = next(loader.iterate(state))
    return state.step, batch["row"]
