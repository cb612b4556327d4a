"""The loader of `host_loop/grain_batched.py`, which explains it, with another step."""

from workloads.host_loop import grain_batched
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(grain_batched.build)
