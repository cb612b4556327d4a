"""Checks of the arguments of Loadax's functions and classes."""

from __future__ import annotations

import operator
from typing import Any


class ArgumentError(ValueError, AssertionError):
    """A wrong argument. It is also an ``AssertionError``, which Loadax raises."""


def whole(name: str, value: Any, least: int) -> int:
    """Returns ``value`` as an int. Raises unless it is an integer >= ``least``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a whole number, not {value!r} of type "
            f"{type(value).__name__}"
        ) from None
    if number < least:
        raise ArgumentError(f"{name} must be at least {least}, not {number}")
    return number


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Returns ``value``. Raises unless it is one of ``choices``."""
    if value not in choices:
        raise ArgumentError(
            f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}"
        )
    return str(value)


def shard_of(num_shards: Any, shard_id: Any) -> tuple[int, int]:
    """Returns both arguments as ints. Raises unless there is such a shard."""
    try:
        shards, shard = operator.index(num_shards), operator.index(shard_id)
    except TypeError:
        raise TypeError(
            "num_shards and shard_id must be whole numbers, "
            f"not {num_shards!r} and {shard_id!r}"
        ) from None
    if shards < 1:
        raise ArgumentError(f"num_shards must be greater than 0, not {shards}")
    if not 0 <= shard < shards:
        raise ArgumentError(
            f"shard_id {shard} must be in the range [0, {shards}), because there are "
            f"{shards} shards"
        )
    return shards, shard
