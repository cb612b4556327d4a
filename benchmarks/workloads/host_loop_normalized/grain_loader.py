"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import grain_loader

build = partial(grain_loader.build, normalize=True)
