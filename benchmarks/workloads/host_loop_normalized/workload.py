"""The loop of `host_loop` with images as float32, multiplied by 1/255."""

from functools import partial

from workloads.host_loop import workload

prepare = partial(workload.prepare, normalize=True)
