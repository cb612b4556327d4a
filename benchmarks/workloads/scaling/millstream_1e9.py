"""Millstream's `next_batch` over 1e9 samples."""

from functools import partial

from workloads.scaling.millstream_1e4 import stepper
from workloads.scaling.workload import STEPS

build = partial(stepper, 10**9, STEPS)
