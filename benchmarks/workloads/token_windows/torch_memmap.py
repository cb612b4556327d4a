"""torch with a sampler of whole batches over the memory map, and no workers.

`np.take` gathers a batch in one call, with less overhead than `index_select` has.
"""

from pathlib import Path

from peers.torch_batches import epochs, rows_taken
from streams import Stream
from workloads.token_windows.workload import BATCH, WINDOW, WINDOWS, mapped


def build(path: Path) -> Stream:
    """The stream of NumPy arrays."""
    windows = mapped(path).reshape(-1, WINDOW)
    return Stream(epochs(WINDOWS, BATCH, rows_taken(windows)))
