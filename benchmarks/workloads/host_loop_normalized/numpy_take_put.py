"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import numpy_take_put

build = partial(numpy_take_put.build, normalize=True)
