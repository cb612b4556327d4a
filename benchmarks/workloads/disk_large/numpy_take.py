"""By hand: `np.take` with `out=` from the memory map, given to the step.

`np.take` is faster than indexing, and the jitted step takes NumPy arrays as they are.
"""

from pathlib import Path

from by_hand import epochs
from streams import Stream
from workloads.disk_large.workload import BATCH, mapped


def build(path: Path) -> Stream:
    """The stream of new arrays."""
    return Stream(epochs(mapped(path), BATCH))
