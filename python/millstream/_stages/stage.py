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


Key = str | int
"""The key of a field: a key of a dict, or a position in a tuple or list."""


def keyed(tree: Tree, key: Key, stage: str) -> Any:
    """Returns the leaf under ``key``.

    Raises ``KeyError`` if there is no such key, and ``TypeError`` if the tree has no
    keys of this kind or the value is not a leaf.
    """
    if isinstance(tree, list | tuple):
        check_position(tree, key, stage)
    elif not isinstance(tree, Mapping):
        raise TypeError(
            f"{stage} needs samples that are dicts with the key {key!r}, or tuples, "
            f"not {type(tree).__name__}"
        )
    elif key not in tree:
        expected = sorted(tree, key=str)
        raise KeyError(f"{stage}: unknown key {key!r}: expected one of {expected}")
    found = tree[key]
    if found is None or isinstance(found, Mapping | list | tuple):
        raise TypeError(f"{stage}: {key!r} is a {type(found).__name__}, not one array")
    return found


def check_position(tree: Tree, key: Any, stage: str, count: int | None = None) -> None:
    """Raises an error unless ``key`` is a position in a tuple or list.

    There are ``count`` positions, or as many as values.
    """
    last = (len(tree) if count is None else count) - 1
    if isinstance(key, bool) or not isinstance(key, int):
        raise TypeError(
            f"{stage}: samples are {type(tree).__name__}s, whose keys are the "
            f"positions 0 to {last}, not {key!r}. Use a position, or rename all "
            "positions with RenameTransform({0: ..., 1: ...}) to get dicts."
        )
    if not 0 <= key <= last:
        raise KeyError(
            f"{stage}: position {key} is out of range: expected 0 to {last}, because "
            f"samples are {type(tree).__name__}s of {len(tree)}"
        )


def with_key(tree: Any, key: Key, value: Any) -> Any:
    """Returns a copy of the dict, tuple or list with another value under ``key``."""
    if isinstance(tree, Mapping):
        return {**tree, key: value}
    values = [*tree[:key], value, *tree[key + 1 :]]  # type: ignore[operator]
    return type(tree)(*values) if hasattr(tree, "_fields") else type(tree)(values)
