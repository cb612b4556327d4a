"""A function for the workers of `start_workers`. The module needs only NumPy."""

import numpy as np

SAMPLES = 4096


def numbered(index: int) -> np.ndarray:
    """A sample that holds its number."""
    return np.full(16, index, np.int32)
