"""Sequential, shuffled and split orders in `jnp`, for data on an accelerator.

A program can compute these indices on the device without waiting for the host. The
arithmetic is that of engine/millstream/order in 32-bit words, for fewer than 2^31
samples; tests compare both. The engine computes the indices of all other orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from millstream._run.state import EPOCH, KEY_HIGH, KEY_LOW, STEP_LOW

MOST_SAMPLES = 1 << 31
EXACT = 128
ROUNDS = 8

SHUFFLE, SPLIT = 1, 4

Array = Any
Key = tuple[Array, Array]
"""The high and the low word of a seed."""
Order = Callable[[Key, Array, Array], Array]
"""(key, epoch, positions as uint32) to sample indices as uint32."""


def _word(value: int) -> np.uint32:
    return np.uint32(value & 0xFFFFFFFF)


def mulhi(a: Array, b: Array) -> Array:
    """The high word of the product of two words."""
    mask, half = _word(0xFFFF), _word(16)
    a_low, a_high = a & mask, a >> half
    b_low, b_high = b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (other >> half)


def philox(counter: tuple[Array, ...], key: Key) -> tuple[Array, ...]:
    """Philox4x32-10: four random words for each counter of four words."""
    c0, c1, c2, c3 = counter
    high, low = key
    k0, k1 = low, high
    for _ in range(10):
        a_high, a_low = mulhi(c0, _word(0xD2511F53)), c0 * _word(0xD2511F53)
        b_high, b_low = mulhi(c2, _word(0xCD9E8D57)), c2 * _word(0xCD9E8D57)
        c0, c1, c2, c3 = b_high ^ c1 ^ k0, b_low, a_high ^ c3 ^ k1, a_low
        k0, k1 = k0 + _word(0x9E3779B9), k1 + _word(0xBB67AE85)
    return c0, c1, c2, c3


def _words(count: int, key: Key, epoch: Array, purpose: int) -> Array:
    """``count`` random words, as the engine draws them for an epoch."""
    blocks = jnp.arange((count + 3) // 4, dtype=jnp.uint32)
    zero = jnp.zeros_like(blocks)
    drawn = philox((zero + epoch, blocks, zero, zero + _word(purpose)), key)
    return jnp.stack(drawn, axis=1).reshape(-1)[:count]


def permuted(n: int, key: Key, epoch: Array, positions: Array, purpose: int) -> Array:
    """The images of ``positions`` under a random permutation of [0, n)."""
    if n <= EXACT:
        table = jnp.argsort(_words(n, key, epoch, purpose), stable=True)
        return table.astype(jnp.uint32)[positions]
    rows = math.isqrt(n - 1) + 1
    columns = -(-n // rows)
    keys = _words(ROUNDS, key, epoch, purpose)

    def hashed(x: Array, word: Array) -> Array:
        h = (x ^ word) * _word(0x9E3779B1)
        h = (h ^ (h >> _word(15))) * _word(0x85EBCA77)
        return (h ^ (h >> _word(13))) * _word(0xC2B2AE3D)

    def add_hash(x: Array, other: Array, word: Array, size: int) -> Array:
        total = x + mulhi(hashed(other, word), _word(size))
        return jnp.minimum(total, total - _word(size))

    def permute(index: Array) -> Array:
        row, column = index // _word(columns), index % _word(columns)
        for i in range(0, ROUNDS, 2):
            row = add_hash(row, column, keys[i], rows)
            column = add_hash(column, row, keys[i + 1], columns)
        return row * _word(columns) + column

    if rows * columns == n:
        return permute(positions)
    # The grid has more than n cells (see permutation.h). Permute an index again until
    # it is below n.
    return lax.while_loop(
        lambda index: jnp.any(index >= _word(n)),
        lambda index: jnp.where(index >= _word(n), permute(index), index),
        permute(positions),
    )


def sequential(n: int) -> Order:
    return lambda key, epoch, positions: positions


def shuffle(n: int) -> Order:
    return lambda key, epoch, positions: permuted(n, key, epoch, positions, SHUFFLE)


def split_order(
    inner: Order,
    n: int,
    *,
    first: int,
    gap: tuple[int, int],
    seed: tuple[int, int] | None,
) -> Order:
    """The order of a `SplitRange`."""

    def order(key: Key, epoch: Array, positions: Array) -> Array:
        place = inner(key, epoch, positions) + _word(first)
        place = jnp.where(place >= _word(gap[0]), place + _word(gap[1]), place)
        if seed is None:
            return place
        fixed = (jnp.uint32(seed[0]), jnp.uint32(seed[1]))
        return permuted(n, fixed, jnp.uint32(0), place, SPLIT)

    return order


def batch_indices(
    order: Order, length: int, batch_size: int, words: Array
) -> tuple[Array, Array]:
    """The sample indices (uint32) and the mask of a state's next batch."""
    rows = jnp.arange(batch_size, dtype=jnp.uint32)
    positions = words[STEP_LOW] * _word(batch_size) + rows
    mask = positions < _word(length)
    key = words[KEY_HIGH], words[KEY_LOW]
    return order(key, words[EPOCH], jnp.where(mask, positions, _word(0))), mask


def next_words(words: Array, steps: int) -> Array:
    """The state's words after its next batch."""
    step = words[STEP_LOW] + _word(1)
    ended = step >= _word(steps)
    epoch = words[EPOCH] + ended.astype(jnp.uint32)
    return words.at[EPOCH].set(epoch).at[STEP_LOW].set(jnp.where(ended, _word(0), step))
