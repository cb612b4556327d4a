"""tf.data: a permutation for each epoch, several batches in each gather, and AUTOTUNE.

`range().shuffle().batch()` with a gather uses 1.8 times the CPU time, and
`from_tensor_slices().shuffle()` uses 3 times. One iterator repeats, because ending an
iterator took up to a second with AUTOTUNE.
"""

from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from dataset import BATCH, SCALE, Arrays
from workloads.host_loop.workload import Loop

# Batches in each gather. Divides the number of whole batches of an epoch.
TOGETHER = {32: 15, 128: 12, 1024: 2}[BATCH]


def views(item: Any) -> tuple[np.ndarray, np.ndarray, None]:
    """NumPy arrays that share the memory of the tensors, and no mask."""
    image, label = item
    return np.asarray(memoryview(image)), np.asarray(memoryview(label)), None


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of tensors, viewed as NumPy arrays."""
    image, label = tf.constant(data.image), tf.constant(data.label)
    steps = len(data) // (TOGETHER * BATCH) * TOGETHER

    def orders(_: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.shuffle(tf.range(len(data)))[: steps * BATCH]
        return tf.data.Dataset.from_tensor_slices(
            tf.reshape(order, (-1, TOGETHER, BATCH))
        )

    def gathered(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        batches = tf.gather(image, indices)
        if normalize:
            batches = tf.cast(batches, tf.float32) * SCALE
        return batches, tf.gather(label, indices)

    dataset = tf.data.Dataset.range(1).repeat().flat_map(orders)
    dataset = dataset.map(gathered, num_parallel_calls=tf.data.AUTOTUNE)
    batches = iter(dataset.unbatch().prefetch(tf.data.AUTOTUNE))
    return Loop(lambda: islice(batches, steps), views)
