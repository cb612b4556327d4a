"""Millstream's `DatasetSource` over the same data set, with two worker processes.

The data set holds the GIL, so two threads would not run in parallel.
"""

import millstream as ms

from torch_images import Images
from workloads.torch_dataset.millstream_0_workers import loop_of
from workloads.torch_dataset.workload import Loop


def build(images: Images) -> Loop:
    """The loop with two processes."""
    return loop_of(ms.DatasetSource(images, workers=2, worker_kind="process"))
