"""The loader of `host_loop/jax_dataloader.py`, which explains it, with another step."""

from workloads.host_loop import jax_dataloader
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(jax_dataloader.build)
