"""Threefry, the default random numbers of JAX, as plain operations.

JAX compiles its own Threefry to loops on the CPU, which take twice as long for a few
numbers. The bits here are the same. Use these functions for raw keys of the default
implementation only; ``is_default`` says whether that is what JAX uses.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def is_default() -> bool:
    """Whether JAX uses its default random numbers, which these functions draw."""
    config: Any = jax.config
    return bool(
        config.jax_default_prng_impl == "threefry2x32"
        and config.jax_threefry_partitionable
    )


def _hashed(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Returns the two words of Threefry-2x32 with 20 rounds for a counter."""
    keys = (key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ np.uint32(0x1BD11BDA))
    x, y = high + keys[0], low + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))
            y = x ^ y
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _counted(key: Any, count: int) -> tuple[Any, Any]:
    return _hashed(
        key, jnp.zeros((count,), np.uint32), jnp.arange(count, dtype=np.uint32)
    )


def split(key: Any, count: int = 2) -> Any:
    """Returns the same as ``jax.random.split`` for a raw key."""
    if not is_default():
        return jax.random.split(key, count)
    return jnp.stack(_counted(key, count), axis=-1)


def fold_in(key: Any, data: int) -> Any:
    """Returns the same as ``jax.random.fold_in`` for a raw key."""
    if not is_default():
        return jax.random.fold_in(key, data)
    return jnp.stack(_hashed(key, jnp.zeros((), np.uint32), jnp.uint32(data)))


def randint(key: Any, count: int, bound: Any) -> Any:
    """Returns the same as ``jax.random.randint(key, (count,), 0, bound)`` (int32)."""
    if not is_default():
        return jax.random.randint(key, (count,), 0, bound)
    first, second = split(key)
    high, low = (x ^ y for x, y in (_counted(first, count), _counted(second, count)))
    span = jnp.maximum(jnp.asarray(bound), 1).astype(np.uint32)
    factor = np.uint32(1 << 16) % span
    factor = (factor * factor) % span
    return (((high % span) * factor + low % span) % span).astype(np.int32)
