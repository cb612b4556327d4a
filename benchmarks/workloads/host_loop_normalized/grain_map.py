"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import grain_map

build = partial(grain_map.build, normalize=True)
