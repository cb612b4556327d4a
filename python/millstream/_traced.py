"""The engine's orders in `jnp`, for data that lives on an accelerator.

The arithmetic is that of engine/millstream/order, in 32-bit words; there are fewer than
2^31 samples. Tests hold both to the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MOST_SAMPLES = 1 << 31
EXACT = 128
ROUNDS = 8

SHUFFLE, REPLACEMENT, WEIGHTED, SPLIT = 1, 2, 3, 4
MIXTURE, BLOCKS, WINDOW = 6, 7, 8

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
    """Four random words for each counter of four words."""
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
    """Where a permutation of [0, n) takes ``positions``."""
    if n <= EXACT:
        table = jnp.argsort(_words(n, key, epoch, purpose), stable=True)
        return table.astype(jnp.uint32)[positions]
    rows, columns = _grid(n)
    keys = _words(ROUNDS, key, epoch, purpose)
    sizes = _word(n), _word(rows), _word(columns)
    return _walked(sizes, keys, positions, whole=rows * columns == n)


def _grid(n: int) -> tuple[int, int]:
    """The rows and columns that a permutation of more than EXACT lays out."""
    rows = math.isqrt(n - 1) + 1
    return rows, -(-n // rows)


def _walked(
    sizes: tuple[Array, Array, Array], keys: Array, positions: Array, *, whole: bool
) -> Array:
    """The rounds of a permutation of n by rows and columns; ``whole`` if they fit.

    Sizes and keys may differ from position to position.
    """
    n, rows, columns = sizes

    def hashed(x: Array, word: Array) -> Array:
        h = (x ^ word) * _word(0x9E3779B1)
        h = (h ^ (h >> _word(15))) * _word(0x85EBCA77)
        return (h ^ (h >> _word(13))) * _word(0xC2B2AE3D)

    def turned(x: Array, other: Array, word: Array, size: Array) -> Array:
        total = x + mulhi(hashed(other, word), size)
        return jnp.minimum(total, total - size)

    def turn(index: Array) -> Array:
        row, column = index // columns, index % columns
        for i in range(0, ROUNDS, 2):
            row = turned(row, column, keys[i], rows)
            column = turned(column, row, keys[i + 1], columns)
        return row * columns + column

    if whole:
        return turn(positions)
    return lax.while_loop(
        lambda index: jnp.any(index >= n),
        lambda index: jnp.where(index >= n, turn(index), index),
        turn(positions),
    )


def _draw(key: Key, epoch: Array, positions: Array, purpose: int) -> tuple[Array, ...]:
    zero = jnp.zeros_like(positions)
    return philox((zero + epoch, positions, zero, zero + _word(purpose)), key)


def _below(n: int, high: Array, low: Array) -> Array:
    """A 64-bit fraction times n, its whole part."""
    low_product = high * _word(n)
    carried = low_product + mulhi(low, _word(n))
    carry = (carried < low_product).astype(jnp.uint32)
    return mulhi(high, _word(n)) + carry


def sequential(n: int) -> Order:
    return lambda key, epoch, positions: positions


def shuffle(n: int) -> Order:
    return lambda key, epoch, positions: permuted(n, key, epoch, positions, SHUFFLE)


def windowed_shuffle(n: int, block: int, window: int) -> Order:
    block = min(block, n)
    full, short = divmod(n, block)
    slots = full + (short > 0)
    window = min(window, slots)
    missing = block - short if short else 0
    last = (slots - 1) // window
    whole, rest = window * block, (slots - last * window) * block
    lengths = sorted({whole, whole - missing, rest, rest - missing})
    lengths = [length for length in lengths if length <= n]

    def order(key: Key, epoch: Array, positions: Array) -> Array:
        zero = jnp.zeros_like(positions)
        short_slot, shifted = zero + _word(slots), zero + _word(n)
        if short:
            words = philox(
                (zero + epoch, zero, zero + _word(1), zero + _word(BLOCKS)), key
            )
            short_slot = _below(slots, words[0], words[1])
        short_window = short_slot // _word(window)
        if short:
            held = jnp.where(short_window == _word(last), _word(rest), _word(whole))
            shifted = short_window * _word(whole) + held - _word(missing)
        late = jnp.where(positions < shifted, zero, _word(missing))
        at = (positions + late) // _word(whole)
        lost = jnp.where(at > short_window, _word(missing), zero)
        begin = at * _word(whole) - lost

        size = jnp.where(at == _word(last), _word(rest), _word(whole))
        size = jnp.where(at == short_window, size - _word(missing), size)
        words = philox((zero + epoch, at, zero, zero + _word(WINDOW)), key)
        keys = (words[1], words[0])
        index = _permuted_apart(lengths, keys, size, positions - begin)

        after = (short_slot - at * _word(window)) * _word(block) + _word(short)
        beyond = (at == short_window) & (index >= after)
        index = jnp.where(beyond, index + _word(missing), index)
        slot = at * _word(window) + index // _word(block)
        place = slot - (slot > short_slot).astype(jnp.uint32)
        place = jnp.where(slot == short_slot, zero, place)
        moved = permuted(full, key, epoch, place, BLOCKS)
        number = jnp.where(slot == short_slot, _word(full), moved)
        return number * _word(block) + index % _word(block)

    return order


def _permuted_apart(
    lengths: list[int], keys: Key, sizes: Array, positions: Array
) -> Array:
    """Permutations of windows: each position has a key and one of ``lengths``."""
    zero = jnp.zeros_like(positions)

    def drawn(count: int) -> Array:
        def words(high: Array, low: Array) -> Array:
            return _words(count, (high, low), jnp.uint32(0), WINDOW)

        return jax.vmap(words)(*keys)

    index = zero
    for length in lengths:
        if length <= EXACT:
            table = jnp.argsort(drawn(length), axis=1, stable=True)
            fits = sizes == _word(length)
            place = jnp.where(fits, positions, zero)[:, None].astype(jnp.int32)
            moved = jnp.take_along_axis(table, place, axis=1)[:, 0]
            index = jnp.where(fits, moved.astype(jnp.uint32), index)
    large = [length for length in lengths if length > EXACT]
    if not large:
        return index
    fits = sizes > _word(EXACT)
    n, rows, columns = (zero + _word(x) for x in (large[0], *_grid(large[0])))
    for length in large[1:]:
        its = sizes == _word(length)
        its_rows, its_columns = _grid(length)
        n = jnp.where(its, _word(length), n)
        rows = jnp.where(its, _word(its_rows), rows)
        columns = jnp.where(its, _word(its_columns), columns)
    places = jnp.where(fits, positions, zero)
    moved = _walked((n, rows, columns), drawn(ROUNDS).T, places, whole=False)
    return jnp.where(fits, moved, index)


def replacement(n: int) -> Order:
    def order(key: Key, epoch: Array, positions: Array) -> Array:
        words = _draw(key, epoch, positions, REPLACEMENT)
        return _below(n, words[0], words[1])

    return order


def weighted(thresholds: np.ndarray, others: np.ndarray) -> Order:
    def order(key: Key, epoch: Array, positions: Array) -> Array:
        words = _draw(key, epoch, positions, WEIGHTED)
        chosen = _below(len(others), words[0], words[1])
        stays = words[2] < jnp.asarray(thresholds)[chosen]
        return jnp.where(stays, chosen, jnp.asarray(others)[chosen])

    return order


def listed(inner: Order, lists: np.ndarray) -> Order:
    def order(key: Key, epoch: Array, positions: Array) -> Array:
        table = jnp.asarray(lists.astype(np.uint32))
        row = table[epoch % _word(len(lists))]
        return row[inner(key, epoch, positions)]

    return order


def parted(
    inner: Order,
    n: int,
    *,
    first: int,
    gap: tuple[int, int],
    seed: tuple[int, int] | None,
) -> Order:
    def order(key: Key, epoch: Array, positions: Array) -> Array:
        place = inner(key, epoch, positions) + _word(first)
        place = jnp.where(place >= _word(gap[0]), place + _word(gap[1]), place)
        if seed is None:
            return place
        fixed = (jnp.uint32(seed[0]), jnp.uint32(seed[1]))
        return permuted(n, fixed, jnp.uint32(0), place, SPLIT)

    return order


def mixture(
    components: list[tuple[Order, int]],
    firsts: list[int],
    nodes: list[np.ndarray],
    length: int,
) -> Order:
    """Components as (order, its length) and the first sample of each."""
    period = int(nodes[1][-1])
    depth = _depth(nodes)

    def order(key: Key, epoch: Array, positions: Array) -> Array:
        zero = jnp.zeros_like(positions)
        # Which position of all epochs, in two words; which period and where in it.
        low = epoch * _word(length) + positions
        high = mulhi(zero + epoch, _word(length)) + (low < positions).astype(jnp.uint32)
        periods_high = high // _word(period)
        periods, index = _divided(high % _word(period), low, zero + _word(period))

        left_weights, weights, lefts, rights = (jnp.asarray(x) for x in nodes)
        at = zero + _word(len(weights) - 1)
        for _ in range(depth):
            left_weight, weight = left_weights[at], weights[at]
            product = index * left_weight + weight // _word(2)
            carry = (product < weight // _word(2)).astype(jnp.uint32)
            before, odd = _divided(mulhi(index, left_weight) + carry, product, weight)
            goes_left = odd + left_weight >= weight
            index = jnp.where(goes_left, before, index - before)
            at = jnp.where(goes_left, lefts[at], rights[at])

        visits = periods * weights[at] + index
        visits_high = (
            periods_high * weights[at]
            + mulhi(periods, weights[at])
            + (visits < index).astype(jnp.uint32)
        )
        lengths = np.array([length for _, length in components], np.uint32)
        its_length = jnp.asarray(lengths)[at]
        epochs, places = _divided(visits_high, visits, its_length)
        numbers = jnp.arange(len(components), dtype=jnp.uint32)
        none = jnp.zeros_like(numbers)
        seeds = philox((none, numbers, none, none + _word(MIXTURE)), key)
        sample = zero
        for k, (component, _) in enumerate(components):
            if not nodes[1][k]:
                continue
            its = at == _word(k)
            own = jnp.where(its, places, zero)
            found = _apart(component, (seeds[1][k], seeds[0][k]), epochs, own)
            sample = jnp.where(its, found + _word(firsts[k]), sample)
        return sample

    return order


def _depth(nodes: list[np.ndarray]) -> int:
    """How many splits lead to the furthest component of a mixture."""
    _, _, lefts, rights = nodes
    found = np.zeros(len(lefts), int)
    for node, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        if left != node:
            found[node] = 1 + max(found[left], found[right])
    return int(found[-1])


def _apart(order: Order, key: Key, epochs: Array, positions: Array) -> Array:
    """The samples at positions that have an epoch each."""
    return jax.vmap(lambda e, p: order(key, e, p[None])[0])(epochs, positions)


def _divided(high: Array, low: Array, by: Array) -> tuple[Array, Array]:
    """Quotient (its low word) and remainder of a two-word number, by < 2^31."""

    def shift(i: Array, carried: tuple[Array, Array]) -> tuple[Array, Array]:
        quotient, rest = carried
        at = _word(63) - i.astype(jnp.uint32)
        word = jnp.where(at >= _word(32), high, low)
        bit = (word >> (at & _word(31))) & _word(1)
        rest = (rest << _word(1)) | bit
        fits = (rest >= by).astype(jnp.uint32)
        return (quotient << _word(1)) | fits, rest - fits * by

    zero = jnp.zeros_like(low)
    return lax.fori_loop(0, 64, shift, (zero, zero))


def batch_indices(
    order: Order, length: int, batch_size: int, remainder: str, words: Array
) -> tuple[Array, Array]:
    """The samples (uint32) and the mask of the batch that a state's words name."""
    key, epoch, step = (words[1], words[2]), words[3], words[4]
    rows = jnp.arange(batch_size, dtype=jnp.uint32)
    if remainder != "wrap":
        positions = step * _word(batch_size) + rows
        mask = positions < _word(length)
        return order(key, epoch, jnp.where(mask, positions, _word(0))), mask

    # An epoch of steps is longer than one of samples by `drift`: position
    # (epoch * steps + step) * B + row counts on from epoch * length.
    steps = -(-length // batch_size)
    drift = _word(steps * batch_size - length)
    low = epoch * drift
    at = step * _word(batch_size) + rows
    total = low + at
    high = mulhi(epoch, drift) + (total < low).astype(jnp.uint32)
    later, positions = _divided(high, total, _word(length))
    indices = _apart(order, key, epoch + later, positions)
    return indices, jnp.ones(batch_size, bool)


def next_words(words: Array, steps: int) -> Array:
    """The words after the batch that these name."""
    step = words[4] + _word(1)
    ended = step >= _word(steps)
    epoch = words[3] + ended.astype(jnp.uint32)
    return words.at[3].set(epoch).at[4].set(jnp.where(ended, _word(0), step))
