"""Hugging Face's `dataset[indices]` in the format "arrow", the fastest of its formats.

The chunks of the table are joined before NumPy looks at them. `shuffle().iter()` does
the same work for each batch.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

from dataset import BATCH
from workloads.hugging_face.workload import COLUMNS, Stream


def arrays_of(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of a table as NumPy arrays."""
    joined = table.combine_chunks()
    x, label = joined["x"].chunk(0), joined["label"].chunk(0)
    return x.flatten().to_numpy().reshape(-1, COLUMNS), label.to_numpy()


def orders(length: int) -> Iterator[np.ndarray]:
    """Endless batches of indices, in another order in each epoch."""
    generator = np.random.default_rng(0)
    while True:
        order = generator.permutation(length)
        yield from (order[at : at + BATCH] for at in range(0, length, BATCH))


def build(dataset: Dataset) -> Stream:
    """The stream of NumPy arrays."""
    tables: Any = dataset.with_format("arrow")
    return Stream(arrays_of(tables[chosen]) for chosen in orders(len(dataset)))
