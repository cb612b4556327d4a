"""torch's DataLoader over batches, for the torch contenders over arrays.

torch uses one thread, as in its own workers. On two cores, two threads are several
times slower for rows and images, and no faster for the table.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

torch.set_num_threads(1)


class Gathered(Dataset):
    """A data set that returns a batch for a tensor of row numbers."""

    def __init__(self, rows: int, gather: Callable[[torch.Tensor], Any]) -> None:
        self.rows = rows
        self.gather = gather

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, indices: torch.Tensor) -> Any:
        return self.gather(indices)


class Permuted(Sampler):
    """The row numbers of each whole batch, as slices of one permutation."""

    def __init__(self, rows: int, batch: int) -> None:
        self.rows = rows
        self.batch = batch

    def __len__(self) -> int:
        return self.rows // self.batch

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(self.rows).split(self.batch)[: len(self)])


def epochs(
    rows: int, batch: int, gather: Callable[[torch.Tensor], Any]
) -> Callable[[], Iterable[Any]]:
    """Epochs of batches that `gather` makes from row numbers, in this process."""
    loader = DataLoader(
        Gathered(rows, gather),
        batch_size=None,
        sampler=Permuted(rows, batch),
        collate_fn=lambda gathered: gathered,
    )
    return lambda: loader


def rows_selected(source: np.ndarray) -> Callable[[torch.Tensor], np.ndarray]:
    """Gathers rows of a NumPy array or memory map by `index_select`.

    Rows are viewed as a signed dtype of the same size, which torch supports fully.
    """
    signed = np.dtype(source.dtype.str.replace("u", "i"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the memory map is read-only
        rows = torch.from_numpy(np.asarray(source).view(signed))
    return lambda chosen: rows.index_select(0, chosen).numpy().view(source.dtype)


def rows_taken(source: np.ndarray) -> Callable[[torch.Tensor], np.ndarray]:
    """Gathers rows of a NumPy array or memory map by `np.take`."""
    plain = np.asarray(source)
    return lambda chosen: plain.take(chosen.numpy(), axis=0, mode="clip")
