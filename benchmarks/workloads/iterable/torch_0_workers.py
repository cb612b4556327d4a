"""Torch's DataLoader in this process, with its default collation.

The step takes NumPy views of the tensors, which costs less than DLPack.
"""

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from streams import Stream
from workloads.iterable.workload import BATCH, samples


class Samples(IterableDataset):
    """The samples as a torch data set."""

    def __iter__(self) -> Iterator[Any]:
        return samples()


def stream_of(
    collate: Callable[[Any], Any] | None, unpack: Callable[[Any], Any]
) -> Any:
    """The loop over batches, each through `unpack`."""
    loader = DataLoader(Samples(), BATCH, collate_fn=collate)
    return Stream(lambda: map(unpack, loader), shuffled=False)


def build() -> Stream:
    """The loop over batches of tensors."""
    return stream_of(None, lambda batch: {name: x.numpy() for name, x in batch.items()})
