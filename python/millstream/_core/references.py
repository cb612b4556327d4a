"""Finds the batches that are still alive and what refers to them."""

from __future__ import annotations

import gc
import itertools
import warnings
import weakref
from types import FrameType
from typing import Any

from millstream._core.public import public

_MAX_LEVELS = 12


@public
class HeldBatches:
    """Reports which batches are still alive and which objects hold them.

    A batch occupies its memory as long as something refers to one of its arrays. Pass
    each batch to ``add``, which keeps no reference to it. ``len`` of this object is
    the number of batches that are alive.

    Args:
      warn_above: ``add`` warns once if more batches than this are alive.
      advice: The last sentence of the warning.
    """

    def __init__(
        self,
        *,
        warn_above: int | None = None,
        advice: str = "Print report() to see what holds them.",
    ) -> None:
        self._warn_above = warn_above
        self._advice = advice
        self._numbers = itertools.count()
        # The keys are (number of the batch, path of an array in it).
        self._live: weakref.WeakValueDictionary[tuple[int, Any], Any] = (
            weakref.WeakValueDictionary()
        )

    def add(self, batch: Any) -> None:
        """Remembers the arrays of a batch, which may be any pytree."""
        import jax

        number = next(self._numbers)
        for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
            self._live[number, path] = leaf
        limit = self._warn_above
        # Counting arrays is faster than counting batches.
        if limit is not None and len(self._live) > limit and len(self) > limit:
            self._warn_above = None
            warnings.warn(
                f"{len(self)} batches are still held, and each occupies its memory. "
                f"{self._advice}",
                RuntimeWarning,
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len({number for number, _ in list(self._live.keys())})

    def report(self) -> str:
        """Returns the arrays that are alive, each with a tree of what refers to it.

        The text is empty if nothing is alive. The report visits all objects of the
        program, so it takes a while.
        """
        import jax

        gc.collect()
        lines: list[str] = []
        seen: set[int] = set()
        for (number, path), held in list(self._live.items()):
            name = jax.tree_util.keystr(path)
            lines.append(f"batch {number}{name}: {_named(held)}")
            _add_referrers([held], lines, seen, 1)
        return "\n".join(lines)


def _add_referrers(
    path: list[Any], lines: list[str], seen: set[int], level: int
) -> None:
    """Adds a line for each object that refers to ``path[-1]``, except ``path``."""
    for referrer in gc.get_referrers(path[-1]):
        if referrer is path or _is_ours(referrer):
            continue
        lines.append(f"{'  ' * level}held by {_named(referrer)}")
        if id(referrer) in seen or isinstance(referrer, FrameType):
            continue
        seen.add(id(referrer))
        if level == _MAX_LEVELS:
            lines.append(f"{'  ' * level}...")
        else:
            _add_referrers([referrer], lines, seen, level + 1)


def _is_ours(referrer: Any) -> bool:
    """Whether the referrer is a frame of this module or an item of ``_live``."""
    if isinstance(referrer, FrameType):
        return referrer.f_globals.get("__name__") == __name__
    if not isinstance(referrer, tuple) or len(referrer) != 2:
        return False
    key = referrer[0]
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], tuple)


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
