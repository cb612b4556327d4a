"""Millstream with `pack=True`, which copies the columns once, packed as rows.

The copy is made before the time is measured.
"""

import millstream as ms
import numpy as np

from ours import epochs
from streams import Stream
from workloads.table.workload import BATCH


def build(table: dict[str, np.ndarray]) -> Stream:
    """The stream of the loader over the table."""
    source = ms.ArraySampleSource(table, ordering="shuffle", pack=True)
    return Stream(epochs(source, BATCH))
