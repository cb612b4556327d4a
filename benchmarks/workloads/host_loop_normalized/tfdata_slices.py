"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import tfdata_slices

build = partial(tfdata_slices.build, normalize=True)
