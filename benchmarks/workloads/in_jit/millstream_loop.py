"""Millstream's `iterate` around the same step, as in `host_loop`."""

from workloads.host_loop import millstream
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(millstream.build)
