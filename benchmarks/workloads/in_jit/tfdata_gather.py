"""The loader of `host_loop/tfdata_gather.py`, which explains it, with another step."""

from workloads.host_loop import tfdata_gather
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(tfdata_gather.build)
