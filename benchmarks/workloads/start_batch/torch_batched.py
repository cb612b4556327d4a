"""The loader of `open_int64/torch_batched.py`, which explains it."""

import jax
import numpy as np

from workloads.open_int64.torch_batched import build


def first_batch(records: np.ndarray, batch_size: int) -> jax.Array:
    """The first batch on the device."""
    return jax.block_until_ready(jax.device_put(next(build(records, seed=0))))
