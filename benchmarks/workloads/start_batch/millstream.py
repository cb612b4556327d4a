"""Millstream's `iterate`, as its README shows it."""

import jax
import millstream as ms
import numpy as np


def first_batch(records: np.ndarray, batch_size: int) -> jax.Array:
    """The first batch on the device."""
    loader = ms.DataLoader(
        pipeline=[
            ms.ArraySampleSource({"record": records}, ordering="shuffle"),
            ms.BatchTransform(batch_size=batch_size),
            ms.DevicePutTransform(),
        ]
    )
    batch, _ = next(iter(loader.iterate(loader.init_state(0))))
    return jax.block_until_ready(batch["record"])
