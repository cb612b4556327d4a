"""tf.data over slices of a permutation: a parallel map gathers and normalises.

It multiplies and adds whole rows of 672 numbers, three times as fast as by channel.
"""

import numpy as np
import tensorflow as tf

from peers.tfdata_batches import epochs
from streams import Stream
from workloads.normalize_channels.workload import (
    BATCH,
    IMAGES,
    ROW_FACTOR,
    ROW_OFFSET,
    SHAPE,
    SIDE,
)


def build(images: np.ndarray) -> Stream:
    """The stream of NumPy arrays."""
    rows = tf.constant(images.reshape(IMAGES, SIDE, -1))

    def gather(chosen: tf.Tensor) -> tf.Tensor:
        image = tf.cast(tf.gather(rows, chosen), tf.float32) * ROW_FACTOR + ROW_OFFSET
        return tf.reshape(image, (BATCH, *SHAPE))

    return Stream(epochs(IMAGES, BATCH, gather))
