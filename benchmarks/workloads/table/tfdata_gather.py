"""tf.data over slices of a permutation: a parallel map gathers all columns by NumPy.

`np.take` in one `numpy_function` needs less than half the CPU time of 20 `tf.gather`.
"""

import numpy as np
import tensorflow as tf

from peers.tfdata_batches import epochs
from streams import Stream
from workloads.table.workload import BATCH, ROWS


def build(table: dict[str, np.ndarray]) -> Stream:
    """The stream of dicts of NumPy arrays."""

    def taken(chosen: np.ndarray) -> list[np.ndarray]:
        return [column.take(chosen, mode="clip") for column in table.values()]

    def gather(chosen: tf.Tensor) -> dict[str, tf.Tensor]:
        dtypes = [tf.float32] * len(table)
        columns = tf.numpy_function(taken, [chosen], dtypes, stateful=False)
        columns = [tf.ensure_shape(column, (BATCH,)) for column in columns]
        return dict(zip(table, columns, strict=True))

    return Stream(epochs(ROWS, BATCH, gather))
