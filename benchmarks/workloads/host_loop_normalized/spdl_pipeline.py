"""The contender of `host_loop`, normalising."""

from functools import partial

from workloads.host_loop import spdl_pipeline

build = partial(spdl_pipeline.build, normalize=True)
