"""Finds the batches that are still alive and what refers to them."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.hydrax._batch import Batch

_MAX_LEVELS = 12
_MARGIN = 16

_serials = itertools.count()
# The keys are (serial, "") for a batch and (serial, name) for one of its arrays.
_live: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()


class Watch:
    """Counts the batches of a run that are alive, and warns once if there are many."""

    def __init__(self, depth: int) -> None:
        self._limit = depth + _MARGIN
        self._serials: set[int] = set()
        self._warned = False

    def add(self, batch: Batch[Any]) -> None:
        """Counts a batch that the loop is about to get."""
        serial = next(_serials)
        _live[serial, ""] = batch
        for name, array in batch._arrays.items():
            _live[serial, name] = array
        self._serials.add(serial)
        if self._warned or len(self._serials) <= self._limit:
            return
        self._serials &= {serial for serial, _ in list(_live.keys())}
        if len(self._serials) > self._limit:
            self._warned = True
            warnings.warn(
                f"{len(self._serials)} batches are still held, and each occupies its "
                "memory. Call hydrax.debug_batch_references() to see what holds them.",
                RuntimeWarning,
                stacklevel=4,
            )


def debug_batch_references() -> None:
    """Prints all batches and arrays that are alive, and the objects that hold them."""
    gc.collect()
    seen: set[int] = set()
    for (serial, name), held in sorted(_live.items(), key=lambda entry: entry[0]):
        what = f"array {name!r}" if name else "itself"
        print(f"[hydrax] batch {serial}, {what}: {_named(held)}")
        _print_referrers([held], seen, 1)


def _print_referrers(path: list[Any], seen: set[int], depth: int) -> None:
    """Prints what refers to ``path[-1]``, except the list ``path`` itself."""
    if depth > _MAX_LEVELS:
        print(f"[hydrax] {'  ' * depth}...")
        return
    referrers = [
        referrer
        for referrer in gc.get_referrers(path[-1])
        if referrer is not path and not _is_ours(referrer)
    ]
    for referrer in referrers:
        print(f"[hydrax] {'  ' * depth}held by {_named(referrer)}")
        if id(referrer) in seen or isinstance(referrer, FrameType):
            continue
        seen.add(id(referrer))
        _print_referrers([referrer], seen, depth + 1)


def _is_ours(referrer: Any) -> bool:
    """Whether the referrer is a frame or an entry of this module."""
    if isinstance(referrer, FrameType):
        return referrer.f_globals.get("__name__") == __name__
    return isinstance(referrer, tuple) and len(referrer) == 2 and _is_entry(referrer)


def _is_entry(pair: tuple[Any, ...]) -> bool:
    key = pair[0]
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str)


def _named(held: Any) -> str:
    if isinstance(held, FrameType):
        code = held.f_code
        return f"{code.co_name}() at {code.co_filename}:{held.f_lineno}"
    kind = type(held)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(held, dict):
        return f"a {name} with {len(held)} keys at {id(held):#x}"
    if isinstance(held, (list, tuple, set)):
        return f"a {name} of {len(held)} at {id(held):#x}"
    return f"a {name} at {id(held):#x}"
