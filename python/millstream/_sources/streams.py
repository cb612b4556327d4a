"""The protocol of streams: sources with a state of their own."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from millstream._core.description import Tree
from millstream._core.public import public
from millstream._sources.iterable import IterableSource
from millstream._sources.source import Source

_METHODS = ("init_state", "next", "element_spec")


@public
@runtime_checkable
class Stream(Protocol):
    """A source that makes its samples from a state, such as an environment.

    Any object with ``steps_per_epoch``, ``init_state``, ``next`` and ``element_spec``
    can be the first entry of a pipeline. JAX traces ``init_state`` and ``next``, so
    they must be pure. A stream may also have:

    - ``next_many(state, n)``, which returns ``(values, masks, state)`` of n samples,
      stacked on a leading axis. ``BatchTransform`` uses it instead of n calls.
    - ``state_spec()``, the spec of a complete state, if ``init_state`` leaves parts of
      it None.
    - ``check_state(state)``, which raises ``ValueError`` for a state that cannot be
      used. It is called before anything is traced.
    """

    steps_per_epoch: int
    """The number of samples in an epoch."""

    def init_state(self, key: Any) -> Any:
        """Returns the first state, a pytree of arrays, for a raw key (uint32[2])."""

    def next(self, state: Any) -> tuple[Tree, Any, Any]:
        """Returns ``(value, mask, state)``: a sample, its mask and the next state.

        The mask is False if the loss must ignore the sample.
        """

    def element_spec(self) -> Tree:
        """Returns a ``jax.ShapeDtypeStruct`` for each leaf of a sample."""


def is_stream(source: Any) -> bool:
    """Whether ``source`` is an iterable, or has the attributes of a stream."""
    if isinstance(source, IterableSource):
        return True
    return not isinstance(source, type | Source) and not _missing(source)


def missing_of_stream(source: Any) -> list[str]:
    """Returns what an object with a method ``next`` lacks to be a stream."""
    return _missing(source) if callable(getattr(source, "next", None)) else []


def _missing(source: Any) -> list[str]:
    missing = [n for n in _METHODS if not callable(getattr(source, n, None))]
    if not hasattr(source, "steps_per_epoch"):
        missing.append("steps_per_epoch")
    return missing
