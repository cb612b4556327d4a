"""Opens the file as a NumPy memory map. Does not include an order or a loader."""

import numpy as np

from workloads.disk_open.workload import Opener

OPENER = Opener(
    lambda path: np.load(path, mmap_mode="r"), len, lambda rows, index: rows[index]
)
