"""Data sets and functions that worker processes import."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate


class Light(Dataset[Any]):
    """Sample i is (a tensor, a float, an int), as in many scripts."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        return torch.full((3,), float(i)), i / 2, i


def numpy_collate(batch: Any) -> Any:
    """Returns a batch of NumPy arrays, as in JAX's tutorials on data loaders."""
    return torch.utils._pytree.tree_map(np.asarray, default_collate(batch))
