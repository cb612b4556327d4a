"""Millstream's `iterate` over the dict of arrays, with the defaults of every option.

The engine gathers all columns of a batch in one call.
"""

import millstream as ms
import numpy as np

from ours import epochs
from streams import Stream
from workloads.table.workload import BATCH


def build(table: dict[str, np.ndarray]) -> Stream:
    """The stream of the loader over the table."""
    return Stream(epochs(ms.ArraySampleSource(table, ordering="shuffle"), BATCH))
