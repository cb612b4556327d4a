"""The epoch of `in_jit` with images of 28 x 28 x 1."""

from functools import partial

from workloads.in_jit import workload

prepare = partial(workload.prepare, unit_axis=True)
