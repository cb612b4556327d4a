"""The loop of `host_loop`, off IDX files that the system holds in memory."""

from functools import partial

import numpy as np

from workloads.host_loop import workload

measure = partial(workload.measure, label_dtype=np.uint8)
