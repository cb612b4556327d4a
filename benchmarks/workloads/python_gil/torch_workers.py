"""torch's DataLoader with two worker processes, each of which makes whole batches.

`__getitems__` fills one array and returns a tensor, which torch passes in shared
memory. torch would pickle a NumPy array. The endless sampler keeps the workers alive.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from functions import WORKERS, rows_of, shuffled
from workloads.python_gil.workload import Function, Stream


class Batches(Dataset):
    """A data set that returns a batch for a list of indices."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return torch.from_numpy(rows_of(self.function, indices))


class Endless:
    """Endless batches of indices."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[int]]:
        return (indices.tolist() for indices in shuffled(self.length))


def collated(batch: torch.Tensor) -> torch.Tensor:
    """Returns the batch unchanged."""
    return batch


def build(function: Function, length: int) -> Stream:
    """The stream of tensors in shared memory, viewed as NumPy arrays."""

    def batches() -> Iterator[np.ndarray]:
        loader = DataLoader(
            Batches(function),
            batch_sampler=Endless(length),
            num_workers=WORKERS,
            prefetch_factor=4,
            collate_fn=collated,
        )
        for batch in loader:
            yield batch.numpy()

    return Stream(batches)
