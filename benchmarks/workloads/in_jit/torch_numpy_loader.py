"""The host loop around a jitted step."""

from workloads.host_loop import torch_numpy_loader
from workloads.in_jit.workload import host_loop_of

build = host_loop_of(torch_numpy_loader.build)
