"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import numpy_take_jit

build = partial(numpy_take_jit.build, normalize=True)
