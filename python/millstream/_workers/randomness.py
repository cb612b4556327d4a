"""The random argument of a user's function: ``seed``, ``key`` or ``rng``.

Worker processes import this module, so it must not import jax.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_NAMES = ("seed", "key", "rng")
_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_BY_NAME = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)

_thread = threading.local()


def random_argument(
    caller: str, fn: Callable[..., Any], also_with_default: tuple[str, ...] = ()
) -> str:
    """Returns the name of the random argument that ``fn`` takes, or "".

    The first positional parameter is the sample or its index, whatever its name. A
    parameter with a default keeps it, unless ``also_with_default`` has its name. Raises
    ``TypeError`` if the function takes two random arguments.
    """
    parameters = _parameters(fn)
    if parameters and parameters[0].kind in _BY_POSITION:
        parameters = parameters[1:]
    wanted = [
        parameter.name
        for name in _NAMES
        for parameter in parameters
        if parameter.name == name
        and parameter.kind in _BY_NAME
        and (parameter.default is parameter.empty or name in also_with_default)
    ]
    if len(wanted) > 1:
        raise TypeError(
            f"{caller}: {fn!r} takes both {wanted[0]} and {wanted[1]}. Remove one of "
            "them."
        )
    return wanted[0] if wanted else ""


def third_argument(fn: Callable[..., Any]) -> str:
    """Returns "key" or "rng" if the third parameter has this name, and else "seed"."""
    positional = [p.name for p in _parameters(fn) if p.kind in _BY_POSITION]
    return positional[2] if positional[2:3] in (["key"], ["rng"]) else "seed"


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a built-in function without a signature
        return []


def random_value(name: str, seed: Any) -> Any:
    """Returns the value of the random argument ``name`` for one sample.

    "seed" is a 64-bit integer, "key" is a uint32[2] like JAX's raw keys, and "rng" is a
    generator that is valid until the next call in the same thread.
    """
    if name == "key":
        return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
    return generator(seed) if name == "rng" else seed


def generator(seed: int) -> np.random.Generator:
    """Returns this thread's generator, which draws like a new ``Philox(key=seed)``.

    Setting the state of an existing generator is about 20 times as fast as creating
    one.
    """
    try:
        rng, key, state = _thread.generator
    except AttributeError:
        # With a key and no seed, spawn() raises an error. Children would depend on
        # earlier samples.
        rng = np.random.Generator(np.random.Philox(key=0))
        key = [0, 0]  # lists, because their elements are read faster than an array's
        state = {
            "bit_generator": "Philox",
            "state": {"counter": [0] * 4, "key": key},
            "buffer": [0] * 4,
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        _thread.generator = rng, key, state
    key[0] = seed
    rng.bit_generator.state = state
    return rng
