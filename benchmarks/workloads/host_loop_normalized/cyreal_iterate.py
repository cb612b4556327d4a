"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import cyreal_iterate

build = partial(cyreal_iterate.build, normalize=True)
