"""tf.data over shuffled indices, each batch gathered at once."""

import tensorflow as tf

from dataset import BATCH, Arrays
from workloads.host_loop.tfdata_slices import cast
from workloads.host_loop.workload import Loop


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    image, label = tf.constant(data.image), tf.constant(data.label)

    def gathered(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        batch = tf.gather(image, indices), tf.gather(label, indices)
        return cast(*batch) if normalize else batch

    dataset = tf.data.Dataset.range(len(data)).shuffle(len(data)).batch(BATCH)
    dataset = dataset.map(gathered, num_parallel_calls=tf.data.AUTOTUNE)
    return Loop(dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator)
