"""Millstream's host loop, off the disk."""

import millstream as ms

from dataset import IMAGES, LABELS, Arrays, unpacked
from workloads.host_loop.millstream import batched, loop_of
from workloads.host_loop.workload import Loop


def loader_of() -> ms.DataLoader:
    """The loader over the unpacked files."""
    folder = unpacked()
    source = ms.IdxSource({"image": folder / IMAGES, "label": folder / LABELS})
    return batched(ms.CastTransform("label", "int32")(source))


def build(data: Arrays) -> Loop:
    """The loop over the files; the arrays are left alone."""
    return loop_of(loader_of())
