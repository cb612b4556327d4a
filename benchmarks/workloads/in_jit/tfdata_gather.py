"""The contender of `host_loop` (see there), with this step instead."""

from workloads.host_loop import tfdata_gather
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(tfdata_gather.build)
