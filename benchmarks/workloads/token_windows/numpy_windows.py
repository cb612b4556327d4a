"""By hand, as small training scripts do it: slices of the memory map, stacked.

Slices work for windows that begin anywhere and need no other view of the file.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streams import Stream, permuted
from workloads.token_windows.workload import BATCH, WINDOW, WINDOWS, mapped


def build(path: Path) -> Stream:
    """The stream of new arrays."""
    tokens = np.asarray(mapped(path))
    orders = permuted(WINDOWS, BATCH)

    def epoch() -> Iterator[np.ndarray]:
        for chosen in orders():
            starts = (chosen * WINDOW).tolist()
            yield np.stack([tokens[start : start + WINDOW] for start in starts])

    return Stream(epoch)
