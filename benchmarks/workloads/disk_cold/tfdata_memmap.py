"""tf.data over shuffled indices, each batch gathered at once from a map of the file."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from workloads.disk_cold.workload import BATCH, WORDS, Epoch, loop_of


def build(path: Path) -> Epoch:
    """The epoch of the loop; batches are read ahead on threads."""
    rows = np.load(path, mmap_mode="r")

    def gathered(indices: tf.Tensor) -> tf.Tensor:
        batch = tf.numpy_function(
            lambda some: np.asarray(rows[some]), [indices], tf.uint32, stateful=False
        )
        return tf.ensure_shape(batch, (BATCH, WORDS))

    dataset = tf.data.Dataset.range(len(rows)).shuffle(len(rows)).batch(BATCH)
    dataset = dataset.map(gathered, num_parallel_calls=4).prefetch(8)
    return loop_of(dataset.as_numpy_iterator)
