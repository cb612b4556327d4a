"""The state of a loader: eight words that name the next batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream._core.public import public

WORDS = 8
CHECK, KEY_HIGH, KEY_LOW, EPOCH, STEP_LOW, STEP_HIGH = range(6)
"""The words of a state by their places; the last two are reserved."""
_MASK = 0xFFFFFFFF


def step_of(words: Any) -> int:
    """The step within its epoch that known words name."""
    return int(words[STEP_LOW]) | int(words[STEP_HIGH]) << 32


def moved(words: Any, epoch: int, step: int) -> np.ndarray:
    """A copy of known words that names another epoch and step."""
    copy = np.array(words, np.uint32)
    copy[[EPOCH, STEP_LOW, STEP_HIGH]] = epoch, step & _MASK, step >> 32
    return copy


@public
@jax.tree_util.register_pytree_with_keys_class
class LoaderState:
    """Where a loader stands: a pytree with one leaf, ``words``, a uint32[8].

    It names the *next* batch: a check word of the pipeline, the two words of the key,
    the epoch, the step (low, high) and two reserved words. It passes ``jax.tree.map``,
    pickling, Orbax, ``jax.device_put`` and ``jax.vmap`` as any array does.
    """

    __slots__ = ("words",)

    def __init__(self, words: Any) -> None:
        self.words = words

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return int(np.asarray(self.words)[EPOCH])

    @property
    def step(self) -> int:
        """The step of the next batch within its epoch."""
        return step_of(np.asarray(self.words))

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any]], None]:
        return ((jax.tree_util.GetAttrKey("words"), self.words),), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: tuple[Any]) -> LoaderState:
        return cls(leaves[0])

    def __reduce__(self) -> tuple[type[LoaderState], tuple[np.ndarray]]:
        return LoaderState, (np.asarray(self.words),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoaderState):
            return NotImplemented
        return bool(np.array_equal(np.asarray(self.words), np.asarray(other.words)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if isinstance(self.words, jax.Array | np.ndarray) and not is_traced(self.words):
            if np.shape(self.words) == (WORDS,):
                return f"LoaderState(epoch={self.epoch}, step={self.step})"
            return f"LoaderState(shape={np.shape(self.words)})"
        return f"LoaderState({self.words!r})"


def has_x64() -> bool:
    """Whether JAX has 64-bit types at this time."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def check_x64(built: bool) -> None:
    """Raises ``RuntimeError`` where x64 is not as it was when a loader was built."""
    if has_x64() != built:
        before, now = ("on", "off") if built else ("off", "on")
        raise RuntimeError(
            f"jax_enable_x64 was {before} when this DataLoader was built and is {now}: "
            f"its batches would have other dtypes. Turn it {before} again or build the "
            "DataLoader anew"
        )


def is_traced(value: Any) -> bool:
    """Whether ``value`` stands for one that is known only when a program runs."""
    return isinstance(value, jax.core.Tracer)


def words_of(state: Any) -> Any:
    """The uint32[8] of a state: a LoaderState, what Orbax makes of one, or the words.

    Raises ``TypeError`` or ``ValueError`` naming what was given instead.
    """
    if isinstance(state, LoaderState):
        words = state.words
    elif isinstance(state, Mapping) and set(state) == {"words"}:
        words = state["words"]
    else:
        words = state
    if not hasattr(words, "shape") or not hasattr(words, "dtype"):
        raise TypeError(
            f"a state is what init_state() returns, not {type(state).__name__}"
        )
    if words.dtype != np.uint32 or words.shape != (WORDS,):
        raise ValueError(
            f"a state holds uint32[{WORDS}], not {words.dtype}{list(words.shape)}"
        )
    return words


def words_in(cursor: Any) -> Any:
    """The words of a state that a cursor begins with."""
    return (cursor if is_traced(cursor) else np.asarray(cursor))[:WORDS]


def state_words(check_word: int, key: Any) -> Any:
    """The words of the state at (epoch 0, step 0) for a key.

    NumPy for a key that is known, traced for one that is not.
    """
    high, low = key_words(key)
    if is_traced(high) or is_traced(low):
        zero = jnp.zeros_like(high)
        check = jnp.full_like(high, check_word)
        return jnp.stack([check, high, low, *[zero] * (WORDS - 3)])
    return np.array([check_word, high, low, *[0] * (WORDS - 3)], np.uint32)


def key_words(key: Any) -> tuple[Any, Any]:
    """The high and the low word of an int, a raw key or a typed key."""
    if key is None:
        key = 0
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return _seed_words(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    if not hasattr(key, "dtype") or not hasattr(key, "shape"):
        raise TypeError(
            "a key is an int, a jax.random.key() or a jax.random.PRNGKey(), "
            f"not {type(key).__name__}"
        )
    words = key if is_traced(key) else np.asarray(key)
    if words.ndim == 0 and jnp.issubdtype(words.dtype, jnp.integer):
        if not is_traced(words):
            return _seed_words(int(words))
        high = words >> 32 if words.dtype.itemsize == 8 else jnp.zeros((), jnp.uint32)
        return high.astype(jnp.uint32), words.astype(jnp.uint32)
    if words.ndim != 1 or words.dtype != np.uint32 or words.shape[0] == 0:
        raise ValueError(
            "a key is an int or a vector of uint32, such as jax.random.PRNGKey(0); "
            f"found {words.dtype}{list(words.shape)}"
        )
    return _folded([words[i] for i in range(words.shape[0])])


def _seed_words(seed: int) -> tuple[np.uint32, np.uint32]:
    """As jax.random.PRNGKey does; seeds that it would truncate keep their high word."""
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(f"a seed has 64 bits; {seed} does not fit")
    short = -(1 << 31) <= seed < 1 << 32
    high = 0 if short and not has_x64() else (seed >> 32) & _MASK
    return np.uint32(high), np.uint32(seed & _MASK)


def _folded(words: list[Any]) -> tuple[Any, Any]:
    """Two words are themselves; more are hashed into two, fewer are the low ones."""
    if len(words) == 1:
        return words[0] ^ words[0], words[0]
    if len(words) == 2:
        return words[0], words[1]
    high, low = words[0], words[1]
    with np.errstate(over="ignore"):
        for word in words[2:]:
            mixed = (high ^ word) * np.uint32(0x9E3779B1)
            mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA77)
            high, low = low ^ mixed, high + (mixed ^ (mixed >> np.uint32(13)))
    return high, low
