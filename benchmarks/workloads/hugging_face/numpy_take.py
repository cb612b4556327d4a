"""By hand: the columns as NumPy arrays in memory, and `np.take` for each batch.

The data set has to fit in memory. Reading it into memory is not timed.
"""

import numpy as np
from datasets import Dataset

from workloads.hugging_face.hugging_face import arrays_of, orders
from workloads.hugging_face.workload import Stream


def build(dataset: Dataset) -> Stream:
    """The stream of NumPy arrays."""
    x, label = arrays_of(dataset.with_format("arrow")[:])
    return Stream(
        (np.take(x, chosen, axis=0), np.take(label, chosen))
        for chosen in orders(len(dataset))
    )
