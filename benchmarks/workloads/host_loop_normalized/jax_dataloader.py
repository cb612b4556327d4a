"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import jax_dataloader

build = partial(jax_dataloader.build, normalize=True)
