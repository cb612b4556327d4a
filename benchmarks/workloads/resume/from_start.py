"""Millstream at step 0. Does not include restoring a state."""

import jax
import numpy as np

from workloads.resume.millstream import loader_of

STEP = 0


def first_batch(rows: np.ndarray) -> tuple[int, jax.Array]:
    """A new loader, its first state, and the batch that it names."""
    loader = loader_of(rows)
    state = loader.init_state(0)
    batch, _ = next(loader.iterate(state))
    return state.step, batch["row"]
