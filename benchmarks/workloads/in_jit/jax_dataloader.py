"""The loader of `host_loop/jax_dataloader.py` with another step; that file says why."""

from workloads.host_loop import jax_dataloader
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(jax_dataloader.build)
