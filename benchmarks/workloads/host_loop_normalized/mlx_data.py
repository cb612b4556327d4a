"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import mlx_data

build = partial(mlx_data.build, normalize=True)
