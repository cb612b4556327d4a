"""Torch's DataLoader in this process, with `__getitems__` for a whole batch.

It reads as `hugging_face` does, which is faster than the format "torch", and does not
collate. With two workers this workload was slower in three of three comparisons.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

from dataset import BATCH
from workloads.hugging_face.hugging_face import arrays_of
from workloads.hugging_face.workload import Stream


class Batches(torch.utils.data.Dataset):
    """A data set that returns a batch for a list of indices."""

    def __init__(self, dataset: Dataset) -> None:
        self.tables: Any = dataset.with_format("arrow")

    def __len__(self) -> int:
        return len(self.tables)

    def __getitems__(self, indices: list[int]) -> tuple[np.ndarray, np.ndarray]:
        return arrays_of(self.tables[indices])


def build(dataset: Dataset) -> Stream:
    """The stream of NumPy arrays, epoch after epoch."""
    loader = DataLoader(
        Batches(dataset), BATCH, shuffle=True, collate_fn=lambda batch: batch
    )

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    return Stream(batches())
