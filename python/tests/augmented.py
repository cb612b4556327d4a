"""Random flips and crops in NumPy, from the random numbers of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

MASK = 0xFFFFFFFF
FLIP, CROP = 6 << 16, 7 << 16
"""The numbers of the first stage of each kind. See docs/semantics.md."""


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Returns the four words of Philox 4x32 with 10 rounds."""
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (b >> 32) ^ counter[1] ^ key[0],
            b & MASK,
            (a >> 32) ^ counter[3] ^ key[1],
            a & MASK,
        ]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return counter


def words(seed: int, epoch: int, sample: int, stage: int) -> list[int]:
    """Returns the first random words of a stage for a sample."""
    purpose = 5  # Purpose::kTransform
    counter = [epoch, sample & MASK, sample >> 32, stage << 4 | purpose]
    stream = philox(counter, [seed & MASK, seed >> 32])
    return philox([0, 0, *stream[2:]], stream[:2])


def flips(seed: int, epoch: int, sample: int, probability: float = 0.5) -> bool:
    return (words(seed, epoch, sample, FLIP)[0] >> 8) * 2.0**-24 < probability


def corner(seed: int, epoch: int, sample: int, choices: tuple[int, int]) -> Any:
    """Returns the offset of a crop, from 0 to ``choices`` without the end."""
    drawn = words(seed, epoch, sample, CROP)
    return tuple((word * n) >> 32 for word, n in zip(drawn, choices, strict=False))


def cropped(
    image: np.ndarray,
    size: tuple[int, int],
    padding: tuple[int, int],
    seed: int,
    epoch: int,
    sample: int,
) -> np.ndarray:
    around = [(p, p) for p in padding] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image, around)
    choices = (padded.shape[0] - size[0] + 1, padded.shape[1] - size[1] + 1)
    top, left = corner(seed, epoch, sample, choices)
    return padded[top : top + size[0], left : left + size[1]]
