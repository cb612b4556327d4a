"""Millstream's `iterate` over an `IdxSource`, as its documentation shows it."""

import millstream as ms

from dataset import IMAGES, LABELS, Arrays, unit_axis_file, unpacked
from workloads.host_loop.millstream import batched, loop_of
from workloads.host_loop.workload import Loop


def source_of(data: Arrays) -> ms.IdxSource:
    """The files whose images have the same shape as ``data``; labels are uint8."""
    folder = unpacked()
    image = unit_axis_file() if data.image.ndim == 4 else folder / IMAGES
    return ms.IdxSource({"image": image, "label": folder / LABELS})


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over the files. It does not read ``data``."""
    return loop_of(batched(source_of(data)))
