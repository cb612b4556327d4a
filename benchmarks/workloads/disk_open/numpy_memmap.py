"""By hand: NumPy's map of the file."""

import numpy as np

from workloads.disk_open.workload import Opener

OPENER = Opener(
    lambda path: np.load(path, mmap_mode="r"), len, lambda rows, index: rows[index]
)
