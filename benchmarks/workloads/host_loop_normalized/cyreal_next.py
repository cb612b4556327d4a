"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import cyreal_next

build = partial(cyreal_next.build, normalize=True)
