"""Millstream's `iterate` over the same samples in memory. Does not include files."""

from dataclasses import replace

import numpy as np

from dataset import Arrays
from workloads.host_loop import millstream
from workloads.host_loop.workload import Loop


def build(data: Arrays, *, normalize: bool = False) -> Loop:
    """The loop over arrays in memory, with labels that are uint8 as in the files."""
    return millstream.build(replace(data, label=data.label.astype(np.uint8)))
