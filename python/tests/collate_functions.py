"""A data set and collate functions, which worker processes import from this module."""

from __future__ import annotations

import collections
import time
from typing import Any

import numpy as np


class Numbered:
    """Sample i is (float32[2] of i, i). Sample ``broken`` raises an error."""

    def __init__(self, length: int, broken: int = -1, seconds: float = 0) -> None:
        self.length, self.broken, self.seconds = length, broken, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> tuple[Any, int]:
        if not 0 <= i < self.length:
            raise IndexError(i)
        if i == self.broken:
            raise RuntimeError(f"sample {i} is damaged")
        time.sleep(self.seconds)
        return np.full(2, i, np.float32), i


def stacked(samples: list[Any]) -> tuple[Any, Any]:
    return np.stack([x for x, _ in samples]), np.array([i for _, i in samples])


def numbered_lists(samples: list[Any]) -> tuple[Any, list[int]]:
    """Returns arrays of another size for each batch, and a list of numbers."""
    numbers = [i for _, i in samples]
    return np.zeros((sum(numbers), 2), np.float32), numbers


def padded(samples: list[Any]) -> dict[str, Any]:
    """Returns rows as long as the largest number, and objects."""
    numbers = np.array([i for _, i in samples])
    return {
        "rows": np.minimum(numbers[:, None], np.arange(numbers.max() + 1)),
        "names": [f"sample {i}" for i in numbers],
        "count": len(numbers),
        "nested": collections.OrderedDict(id=numbers),
        "scalar": np.array(len(numbers) / 2),
    }
