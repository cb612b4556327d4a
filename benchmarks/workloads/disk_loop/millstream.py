"""Millstream's `iterate` over an `IdxSource`, as its documentation shows it."""

import millstream as ms

from dataset import IMAGES, LABELS, Arrays, unpacked
from workloads.host_loop.millstream import batched, loop_of
from workloads.host_loop.workload import Loop


def source_of() -> ms.IdxSource:
    """The unpacked files; labels are uint8 in them."""
    folder = unpacked()
    return ms.IdxSource({"image": folder / IMAGES, "label": folder / LABELS})


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over the files; the arrays are left alone."""
    return loop_of(batched(source_of()))
