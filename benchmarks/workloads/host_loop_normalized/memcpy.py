"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import memcpy

build = partial(memcpy.build, normalize=True)
