"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import torch_numpy_loader

build = partial(torch_numpy_loader.build, normalize=True)
