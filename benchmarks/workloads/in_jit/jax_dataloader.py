"""The contender of `host_loop` (see there), with this step instead."""

from workloads.host_loop import jax_dataloader
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(jax_dataloader.build)
