"""tf.data as its guide has it: slices, a shuffle as large as the dataset, batches."""

import tensorflow as tf

from dataset import BATCH, SCALE, Arrays
from workloads.host_loop.workload import Loop


def cast(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The images as float32 between 0 and 1, the labels as they are."""
    return tf.cast(image, tf.float32) * SCALE, label


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over batches of NumPy arrays, put on the device."""
    dataset = tf.data.Dataset.from_tensor_slices((data.image, data.label))
    dataset = dataset.shuffle(len(data)).batch(BATCH)
    if normalize:
        dataset = dataset.map(cast, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return Loop(dataset.as_numpy_iterator)
