"""The base class of stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from millstream._core.description import Description, Tree
from millstream._sources.source import Source
from millstream._sources.streams import Stream, is_stream

if TYPE_CHECKING:
    from millstream._run.builder import Builder
    from millstream._run.pipeline import Pipeline


class Stage(Description):
    """A transformation of samples or batches.

    A stage is only a description. Its ``place`` tells the builder of a pipeline who
    runs it: the engine, XLA, workers or Python.
    """

    stateful: ClassVar[bool] = False
    """Whether the stage has a state, which makes the pipeline a stream."""

    changes_mask: ClassVar[bool] = False
    """Whether ``trace`` returns ``(value, mask)`` and not only a value."""

    def __call__(self, inner: Source | Stream) -> Pipeline:
        """Returns the pipeline ``inner`` with this stage at its end.

        Raises the same errors as building a loader, except those that only tracing
        or workers can find.
        """
        if not isinstance(inner, Source) and not is_stream(inner):
            raise TypeError(
                f"{type(self).__name__} needs a source or a pipeline, not "
                f"{type(inner).__name__}"
            )
        from millstream._run.pipeline import Pipeline, check

        if isinstance(inner, Source):
            longer = Pipeline(inner.head, (*inner.stages, self))
        else:
            longer = Pipeline(inner, (self,))
        check(longer.head, longer.stages)
        return longer

    def __radd__(self, inner: Source) -> Pipeline:
        """Returns ``inner + stage``, which is the same as ``stage(inner)``."""
        return self(inner)

    def place(self, builder: Builder) -> None:
        """Adds this stage to the end of the pipeline that ``builder`` holds.

        A stage that the engine can run calls ``builder.add_native``. If the stage also
        has a ``trace``, which does the same in XLA, it passes ``trace`` along. If
        ``builder.native`` is False, it calls ``builder.add_traced`` instead.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement place()")


def keyed(tree: Tree, key: str, stage: str) -> Any:
    """Returns the leaf under ``key``.

    Raises ``KeyError`` if there is no such key, and ``TypeError`` if the tree is not a
    dict or the value is not a leaf.
    """
    if not isinstance(tree, Mapping):
        raise TypeError(
            f"{stage} needs samples that are dicts with the key {key!r}, not "
            f"{type(tree).__name__}"
        )
    if key not in tree:
        raise KeyError(f"{stage}: unknown key {key!r}: expected one of {sorted(tree)}")
    found = tree[key]
    if isinstance(found, Mapping | list | tuple):
        raise TypeError(f"{stage}: {key!r} is a {type(found).__name__}, not one array")
    return found


def with_key(tree: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Returns a copy of the dict with another value under ``key``."""
    return {**tree, key: value}
