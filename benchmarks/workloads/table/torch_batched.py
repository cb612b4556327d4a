"""torch with a sampler of whole batches: `index_select` gathers a column at a time.

No worker processes: sending a batch between processes costs more than gathering it.
"""

import numpy as np
import torch

from peers.torch_batches import epochs
from streams import Stream
from workloads.table.workload import BATCH, ROWS


def build(table: dict[str, np.ndarray]) -> Stream:
    """The stream of dicts of NumPy arrays that share the tensors' memory."""
    tensors = {name: torch.from_numpy(column) for name, column in table.items()}

    def gather(chosen: torch.Tensor) -> dict[str, np.ndarray]:
        return {
            name: column.index_select(0, chosen).numpy()
            for name, column in tensors.items()
        }

    return Stream(epochs(ROWS, BATCH, gather))
