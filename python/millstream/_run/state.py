"""The state of a loader: eight uint32 words that identify the next batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream._core.public import public

WORDS = 8
CHECK, KEY_HIGH, KEY_LOW, EPOCH, STEP_LOW, STEP_HIGH = range(6)
"""The positions of the words in a state. The last two words are reserved."""
_LOW_32_BITS = 0xFFFFFFFF


def step_of(words: Any) -> int:
    """Returns the step within the epoch. The words must not be traced."""
    return int(words[STEP_LOW]) | int(words[STEP_HIGH]) << 32


def words_at(words: Any, epoch: int, step: int) -> np.ndarray:
    """Returns a copy of the words with another epoch and step."""
    copy = np.array(words, np.uint32)
    copy[[EPOCH, STEP_LOW, STEP_HIGH]] = epoch, step & _LOW_32_BITS, step >> 32
    return copy


@public
@jax.tree_util.register_pytree_with_keys_class
class LoaderState:
    """The position of a loader: a pytree with the leaf ``words``, a uint32[8].

    It identifies the *next* batch. The words are a checksum of the pipeline, the two
    words of the key, the epoch, the step (low, high) and two reserved words. It works
    with ``jax.tree.map``, pickle, Orbax, ``jax.device_put`` and ``jax.vmap``.

    The state of a stream, such as an environment or a replay buffer, is the pytree
    ``stream``. Without a stream it is None and adds no leaf.
    """

    __slots__ = ("finished_by", "stream", "words")

    finished_by: int | None
    """The serial number of the loader that iterated from this state to the end."""

    def __init__(self, words: Any, stream: Any = None) -> None:
        self.words = words
        self.stream = stream
        self.finished_by = None

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return int(np.asarray(self.words)[EPOCH])

    @property
    def step(self) -> int:
        """The step of the next batch within its epoch."""
        return step_of(np.asarray(self.words))

    @property
    def inner_state(self) -> Any:
        """The state of the stream, or this state if there is no stream.

        Cyreal nests the states of its stages, as in ``state.inner_state.epoch``.
        """
        return self if self.stream is None else self.stream

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the stream's state, such as ``buffer``."""
        if name.startswith("_") or name in self.__slots__ or self.stream is None:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.stream, name)

    @property
    def position_in_epoch(self) -> int:
        """The step of the next batch within its epoch, under Cyreal's name."""
        return self.step

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any], ...], None]:
        words = jax.tree_util.GetAttrKey("words"), self.words
        if self.stream is None:
            return (words,), None
        return (words, (jax.tree_util.GetAttrKey("stream"), self.stream)), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any, ...]) -> LoaderState:
        return cls(*children)

    def __reduce__(self) -> tuple[type[LoaderState], tuple[Any, ...]]:
        words, stream = jax.tree.map(np.asarray, (self.words, self.stream))
        return LoaderState, (words,) if stream is None else (words, stream)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LoaderState):
            return NotImplemented
        leaves, structure = jax.tree.flatten(self)
        others, its_structure = jax.tree.flatten(other)
        return structure == its_structure and all(  # type: ignore[operator]
            np.array_equal(np.asarray(a), np.asarray(b))
            for a, b in zip(leaves, others, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if isinstance(self.words, jax.Array | np.ndarray) and not is_traced(self.words):
            if np.shape(self.words) == (WORDS,):
                return f"LoaderState(epoch={self.epoch}, step={self.step})"
            return f"LoaderState(shape={np.shape(self.words)})"
        return f"LoaderState({self.words!r})"


def has_x64() -> bool:
    """Whether ``jax_enable_x64`` is on."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def check_x64(built: bool) -> None:
    """Raises ``RuntimeError`` if ``jax_enable_x64`` has changed.

    ``built`` is the setting when the loader was built.
    """
    if has_x64() != built:
        before, now = ("on", "off") if built else ("off", "on")
        raise RuntimeError(
            f"jax_enable_x64 was {before} when this DataLoader was built and is now "
            f"{now}, so its batches would have other dtypes. Turn it {before} or build "
            "a new DataLoader."
        )


def is_traced(value: Any) -> bool:
    """Whether ``value`` is a JAX tracer, whose value is not known yet."""
    return isinstance(value, jax.core.Tracer)


def words_of(state: Any) -> Any:
    """Returns the uint32[8] of a state.

    ``state`` is a ``LoaderState``, the dict that Orbax restores for one, or the words
    themselves. Raises ``TypeError`` or ``ValueError`` for anything else.
    """
    if isinstance(state, LoaderState):
        words = state.words
    elif isinstance(state, Mapping) and "words" in state:
        words = state["words"]
    else:
        words = state
    if not hasattr(words, "shape") or not hasattr(words, "dtype"):
        raise TypeError(
            f"expected a state, found {type(state).__name__}. Pass the result of "
            "init_state() or a state from an iterator."
        )
    if words.dtype != np.uint32 or words.shape != (WORDS,):
        raise ValueError(
            f"expected the words of a state to be uint32[{WORDS}], found "
            f"{words.dtype}{list(words.shape)}"
        )
    return words


def state_words(check_word: int, key: Any) -> Any:
    """Returns the words of the state at (epoch 0, step 0) for a key.

    The result is a tracer if the key is one, and a NumPy array otherwise.
    """
    high, low = key_words(key)
    if is_traced(high) or is_traced(low):
        zero = jnp.zeros_like(high)
        check = jnp.full_like(high, check_word)
        return jnp.stack([check, high, low, *[zero] * (WORDS - 3)])
    return np.array([check_word, high, low, *[0] * (WORDS - 3)], np.uint32)


def key_words(key: Any) -> tuple[Any, Any]:
    """Returns the high and the low word of an int, a raw key or a typed key."""
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
    return _two_words([words[i] for i in range(words.shape[0])])


def concrete_words(key: Any) -> tuple[int, int]:
    """Returns the words of a key as ints. Raises ``TypeError`` for a traced key."""
    high, low = key_words(key)
    if is_traced(high) or is_traced(low):
        raise TypeError(
            "the key of a data set must be concrete, not traced. Create the data set "
            "outside jit."
        )
    return int(high), int(low)


def _seed_words(seed: int) -> tuple[np.uint32, np.uint32]:
    """Returns the words that jax.random.PRNGKey makes for a seed.

    Without x64, PRNGKey truncates seeds above 32 bits. This function does not.
    """
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(f"expected a seed of at most 64 bits, found {seed}")
    short = -(1 << 31) <= seed < 1 << 32
    high = 0 if short and not has_x64() else (seed >> 32) & _LOW_32_BITS
    return np.uint32(high), np.uint32(seed & _LOW_32_BITS)


def _two_words(words: list[Any]) -> tuple[Any, Any]:
    """Returns a key of any length as two words. Longer keys are hashed."""
    if len(words) == 1:  # the XOR is a zero of the same type, also for tracers
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
