"""Gathers the rows of 128 distinct random numbers with NumPy.

Includes importing JAX and `device_put`. Does not include a shuffle of 1e8 records.
"""

import jax
import numpy as np


def first_batch(records: np.ndarray, batch_size: int) -> jax.Array:
    """The first batch on the device."""
    chosen = np.random.default_rng(0).choice(len(records), batch_size, replace=False)
    return jax.block_until_ready(jax.device_put(records[chosen]))
