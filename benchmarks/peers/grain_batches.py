"""Grain over a source of batches, for the Grain contenders over arrays."""

from collections.abc import Callable, Iterable
from typing import Any

import grain
import numpy as np

THREADS = grain.ReadOptions(num_threads=2, prefetch_buffer_size=8)
NO_THREADS = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


class Batches(grain.sources.RandomAccessDataSource):
    """A source whose records are whole batches of a permutation."""

    def __init__(
        self, order: np.ndarray, batch: int, gather: Callable[[np.ndarray], Any]
    ) -> None:
        self.order = order
        self.batch = batch
        self.gather = gather

    def __len__(self) -> int:
        return len(self.order) // self.batch

    def __getitem__(self, index: int) -> Any:
        first = index * self.batch
        return self.gather(self.order[first : first + self.batch])


def epochs(
    rows: int,
    batch: int,
    gather: Callable[[np.ndarray], Any],
    read: grain.ReadOptions = THREADS,
) -> Callable[[], Iterable[Any]]:
    """Epochs of batches that `gather` makes from row numbers."""
    generator = np.random.default_rng(0)

    def epoch() -> grain.IterDataset:
        source = Batches(generator.permutation(rows), batch, gather)
        return grain.MapDataset.source(source).to_iter_dataset(read)

    return epoch


def rows_taken(source: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Gathers rows of a NumPy array or memory map; `np.take` releases the GIL."""
    plain = np.asarray(source)
    return lambda chosen: plain.take(chosen, axis=0, mode="clip")
