"""Random functions for tests of workers, and a second implementation of seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

FUNCTION, SOURCE = 0, 5 << 16
"""Stage numbers. See the table of stages in docs/semantics.md."""

TRANSFORM = 5
"""The purpose of a random block for a stage."""

MASK = 0xFFFFFFFF


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """Returns the block of Philox 4x32-10."""
    c, (k0, k1) = counter, key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = (b >> 32) ^ c[1] ^ k0, b & MASK, (a >> 32) ^ c[3] ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def seed_of(seed: int, epoch: int, sample: int, stage: int) -> int:
    """Returns the seed that a function gets, for a 32-bit seed of the loader."""
    counter = (epoch, sample & MASK, sample >> 32, stage << 4 | TRANSFORM)
    low, high, *rest = philox(counter, (seed, 0))
    words = philox((0, 0, *rest), (low, high))
    return words[0] << 32 | words[1]


def words_of(seed: int) -> np.ndarray:
    return np.array([seed >> 32, seed & MASK], np.uint32)


def seeds_of(words: Any) -> np.ndarray:
    words = np.asarray(words).astype(np.uint64)
    return words[..., 0] << np.uint64(32) | words[..., 1]


def drawn_by(rng: np.random.Generator) -> np.ndarray:
    """Draws an odd number of 32-bit words, so that half of a 64-bit word is left."""
    few = rng.integers(0, 1000, 3, dtype=np.int32)
    return np.concatenate([few, rng.normal(size=2)]).astype(np.float32)


def expected_draws(seed: int) -> np.ndarray:
    return drawn_by(np.random.Generator(np.random.Philox(key=seed)))


class Part:
    """A function of an index. ``part`` says which of several sources made a sample."""

    def __init__(self, part: int = 0) -> None:
        self.part = part

    def __call__(self, index: int, seed: int) -> dict[str, Any]:
        return {"i": index, "part": self.part, "seed": words_of(seed)}


class FillPart(Part):
    def __call__(self, item: int, arrays: Mapping[str, np.ndarray], seed: int) -> None:  # type: ignore[override]
        arrays["i"][...] = item
        arrays["part"][...] = self.part
        arrays["seed"][:] = words_of(seed)


def with_seed(index: int, seed: int) -> dict[str, Any]:
    return {"seed": words_of(seed), "draws": expected_draws(seed)}


def with_key(index: int, *, key: np.ndarray) -> dict[str, Any]:
    assert (key.shape, key.dtype) == ((2,), np.uint32)
    return {"seed": key}


def with_rng(index: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"draws": drawn_by(rng)}


def map_rng(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**sample, "draws": drawn_by(rng)}


def fill_rng(item: int, arrays: Any, rng: np.random.Generator) -> None:
    arrays["draws"][:] = drawn_by(rng)


def fill_key(item: int, arrays: Any, key: np.ndarray) -> None:
    arrays["seed"][:] = key


def fill_any_name(item: int, arrays: Any, number: int) -> None:
    arrays["seed"][:] = words_of(number)


def with_text(index: int, seed: int) -> dict[str, Any]:
    return {"i": index, "text": f"{index} {seed}"}


def fails(seed: int) -> bool:
    return seed % 4 == 0


def failing(index: int, seed: int) -> dict[str, Any]:
    if fails(seed):
        raise ValueError("a bad seed")
    return {"i": index, "part": 0, "seed": words_of(seed)}


# Functions that do not draw.


def with_defaults(index: int, seed: int = 5, key: int = 6, rng: Any = None) -> Any:
    return {"x": np.array([index, seed, key, rng is None])}


def named_seed(seed: int) -> Any:
    return {"x": np.array([seed, 2 * seed])}
