"""NumPy's memory map of the file; includes no order and no loader."""

import numpy as np

from workloads.disk_open.workload import Opener

OPENER = Opener(
    lambda path: np.load(path, mmap_mode="r"), len, lambda rows, index: rows[index]
)
