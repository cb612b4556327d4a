"""The loop of `host_loop`, from IDX files in the page cache."""

from functools import partial

import numpy as np

from workloads.host_loop import workload

prepare = partial(workload.prepare, label_dtype=np.uint8)
