"""The host loop with images cast to float32 and multiplied by 1/255."""

from functools import partial

from workloads.host_loop import workload

measure = partial(workload.measure, normalize=True)
