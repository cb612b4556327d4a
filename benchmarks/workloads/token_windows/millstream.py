"""Millstream's `iterate` over a strided view of the memory map, with default options.

`ArraySampleSource` reads views in place, so the engine copies each window only once.
"""

from pathlib import Path

import millstream as ms

from ours import epochs
from streams import Stream
from workloads.token_windows.workload import BATCH, WINDOW, mapped


def build(path: Path) -> Stream:
    """The stream of the loader over the windows."""
    windows = ms.sliding_window_many(mapped(path), WINDOW, stride=WINDOW)
    return Stream(epochs(ms.ArraySampleSource(windows, ordering="shuffle"), BATCH))
