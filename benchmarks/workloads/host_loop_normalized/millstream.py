"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import millstream

build = partial(millstream.build, normalize=True)
