"""The interfaces of Cyreal: what a source, a transform and a data set must define."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from millstream._core.description import Tree

State = TypeVar("State")


class Source(Protocol[State]):
    """Any object with these methods can be the source of a pipeline."""

    steps_per_epoch: int
    """The number of values in an epoch."""

    def init_state(self, key: Any) -> State:
        """Returns the first state."""
        ...

    def next(self, state: State) -> tuple[Tree, Any, State]:
        """Returns ``(value, mask, next_state)`` for a state."""
        ...

    def element_spec(self) -> Tree:
        """Returns a ``jax.ShapeDtypeStruct`` for each leaf of a value."""
        ...


class SourceTransform(Source[State], Protocol[State]):
    """A source that transforms the values of another source, ``inner``."""

    inner: Source[Any]


class DatasetProtocol(Protocol):
    """A data set with a length, whose samples are read by index."""

    def __len__(self) -> int:
        """Returns the number of samples."""
        ...

    def __getitem__(self, index: int) -> Any:
        """Returns a sample."""
        ...
