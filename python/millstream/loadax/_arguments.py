"""Checks of arguments, and the arguments of the three generations of Loadax."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, TypedDict

_OLD = "the first and second generation of Loadax (0.1 and 0.2)"
_NEW = "the third generation of Loadax"
_GENERATIONS = {
    **dict.fromkeys(("batcher", "strategy", "sharding_strategy"), _OLD),
    **dict.fromkeys(("shard_id", "num_shards", "mesh", "data_axis_name"), _OLD),
    **dict.fromkeys(("workers", "prefetch"), _OLD),
    **dict.fromkeys(("dataset", "batch_size"), _NEW),
    **dict.fromkeys(("num_workers", "prefetch_factor"), _NEW),
}


class Options(TypedDict, total=False):
    """The keyword arguments of every loader; see `DistributedDataLoader`."""

    drop_last: bool
    remainder: str
    on_error: str
    worker_kind: str


class ArgumentError(ValueError, AssertionError):
    """A wrong argument. It is also an ``AssertionError``, which Loadax raises."""


def options(owner: str, given: Mapping[str, Any]) -> None:
    """Raises ``TypeError`` for a keyword argument that ``owner`` does not have."""
    for name in given.keys() - Options.__annotations__:
        if name not in _GENERATIONS:
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}")
        raise TypeError(
            f"{owner} has no argument {name}, which belongs to {_GENERATIONS[name]}. "
            "Use DataLoader(batcher).batch_size(n).workers(n).prefetch(n).shard(mesh)"
            ".build(dataset) or, for batches that are lists, Dataloader(dataset, "
            "batch_size, num_workers, prefetch_factor)."
        )


def whole(name: str, value: Any, least: int, bound: str = "") -> int:
    """Returns ``value`` as an int. Raises unless it is an integer >= ``least``.

    ``bound`` replaces "at least ..." in the message.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{name} must be a whole number, not {value!r} of type "
            f"{type(value).__name__}"
        )
    number = operator.index(value)
    if number < least:
        raise ArgumentError(
            f"{name} must be {bound or f'at least {least}'}, not {number}"
        )
    return number


def shard_of(num_shards: Any, shard_id: Any) -> tuple[int, int]:
    """Returns both arguments as ints. Raises unless there is such a shard."""
    if num_shards is None or shard_id is None:
        raise ArgumentError(
            "Either both or neither of shard_id and num_shards must be given; found "
            f"{shard_id} and {num_shards}"
        )
    shards = whole("num_shards", num_shards, 1, "greater than 0")
    shard = whole("shard_id", shard_id, 0, f"in the range [0, {shards})")
    if shard >= shards:
        raise ArgumentError(
            f"shard_id {shard} must be in the range [0, {shards}), because there are "
            f"{shards} shards"
        )
    return shards, shard
