"""torch with a sampler of whole batches over a tensor that shares the memory map.

`index_select` gathers a batch in one call; workers would copy it between processes.
"""

from pathlib import Path

from peers.torch_batches import epochs, rows_selected
from streams import Stream
from workloads.disk_large.workload import BATCH, ROWS, mapped


def build(path: Path) -> Stream:
    """The stream of NumPy arrays that share the tensors' memory."""
    return Stream(epochs(ROWS, BATCH, rows_selected(mapped(path))))
