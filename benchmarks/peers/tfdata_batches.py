"""tf.data over batches of row numbers, for the tf.data contenders over arrays.

It prefetches a fixed number of batches. With AUTOTUNE it would make many more during
the turns of the other contenders, when its time is not measured.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

AHEAD = 8


def epochs(
    rows: int, batch: int, gather: Callable[[tf.Tensor], Any]
) -> Callable[[], Iterable[Any]]:
    """Epochs of batches that `gather` makes from row numbers, in parallel calls."""

    def order() -> tf.Tensor:
        whole = rows // batch * batch
        return tf.reshape(tf.random.shuffle(tf.range(rows))[:whole], (-1, batch))

    def epoch() -> Iterable[Any]:
        dataset = tf.data.Dataset.from_tensor_slices(order())
        dataset = dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.prefetch(AHEAD).as_numpy_iterator()

    return epoch


def rows_taken(source: np.ndarray, batch: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Gathers rows of a NumPy array or memory map; `np.take` releases the GIL."""
    dtype, shape = tf.as_dtype(source.dtype), (batch, *source.shape[1:])
    plain = np.asarray(source)

    def gather(indices: tf.Tensor) -> tf.Tensor:
        taken = tf.numpy_function(
            lambda some: plain.take(some, axis=0, mode="clip"),
            [indices],
            dtype,
            stateful=False,
        )
        return tf.ensure_shape(taken, shape)

    return gather
