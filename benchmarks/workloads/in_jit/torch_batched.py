"""The loader of `host_loop/torch_batched.py`, which explains it, with another step."""

from workloads.host_loop import torch_batched
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(torch_batched.build)
