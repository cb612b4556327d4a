"""Millstream's `iterate` over a `WindowSource`, with default options.

The engine copies each window in one piece from the memory map into the batch.
"""

from pathlib import Path

import millstream as ms

from ours import epochs
from streams import Stream
from workloads.token_windows.workload import BATCH, WINDOW, mapped


def build(path: Path) -> Stream:
    """The stream of the loader over the windows."""
    tokens = ms.ArraySampleSource(mapped(path))
    return Stream(epochs(ms.WindowSource(tokens, WINDOW, WINDOW), BATCH))
