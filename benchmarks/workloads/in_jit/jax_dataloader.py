"""The host loop around a jitted step."""

from workloads.host_loop import jax_dataloader
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(jax_dataloader.build)
