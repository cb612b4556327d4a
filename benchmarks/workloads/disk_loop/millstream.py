"""Millstream's host loop, off the disk."""

import millstream as ms

from dataset import Arrays, unpacked
from workloads.host_loop.millstream import batched, loop_of
from workloads.host_loop.workload import Loop


def loader_of() -> ms.DataLoader:
    """The loader over the unpacked files."""
    source = ms.FashionMNISTDataset.make_disk_source(cache_dir=unpacked())
    return batched(source)


def build(data: Arrays) -> Loop:
    """The loop over the files; the arrays are left alone."""
    return loop_of(loader_of())
