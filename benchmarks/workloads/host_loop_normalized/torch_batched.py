"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import torch_batched

build = partial(torch_batched.build, normalize=True)
