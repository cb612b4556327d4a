"""Writes IDX files for the tests."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx_bytes(array: NDArray[Any]) -> bytes:
    """Returns ``array`` in the IDX format."""
    code = _CODES[array.dtype.str[1:]]
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_idx(path: Path, array: NDArray[Any]) -> Path:
    """Writes ``array`` to ``path``, gzipped if it ends with .gz, and returns it."""
    content = idx_bytes(array)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def images_and_labels(
    count: int, *, seed: int = 0, size: tuple[int, int] = (28, 28)
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Returns random images and labels."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, *size), np.uint8)
    return images, random.integers(0, 10, count, np.uint8)
