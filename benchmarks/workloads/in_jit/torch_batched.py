"""The contender of `host_loop` (see there), with this step instead."""

from workloads.host_loop import torch_batched
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(torch_batched.build)
