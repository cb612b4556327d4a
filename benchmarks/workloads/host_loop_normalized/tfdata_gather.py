"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import tfdata_gather

build = partial(tfdata_gather.build, normalize=True)
