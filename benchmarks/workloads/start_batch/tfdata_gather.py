"""tf.data over indices that `index_shuffle` computes without a table.

A shuffle buffer of 1e8 indices takes several seconds to fill.
"""

import jax
import numpy as np
import tensorflow as tf


def first_batch(records: np.ndarray, batch_size: int) -> jax.Array:
    """The first batch on the device."""
    last = len(records) - 1

    def shuffled(index: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.index_shuffle(index, seed=(0, 1), max_index=last)

    indices = tf.data.Dataset.range(len(records)).map(shuffled).batch(batch_size)
    chosen = next(indices.as_numpy_iterator())
    return jax.block_until_ready(jax.device_put(records[chosen]))
