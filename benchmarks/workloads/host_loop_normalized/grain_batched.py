"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import grain_batched

build = partial(grain_batched.build, normalize=True)
