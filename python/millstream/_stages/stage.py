"""What a stage is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream._core.description import Description, Tree
from millstream._sources.source import Source

if TYPE_CHECKING:
    from millstream._run.builder import Builder
    from millstream._run.pipeline import Pipeline


class Stage(Description):
    """Something done to samples or to batches of them.

    A stage is a description. Its ``place`` tells the builder of a pipeline who does the
    work: the engine, XLA, worker processes or Python.
    """

    def __call__(self, inner: Source) -> Pipeline:
        """The pipeline ``inner`` with this stage at its end.

        Raises what a loader of it would, but for what takes tracing or workers to know.
        """
        if not isinstance(inner, Source):
            raise TypeError(
                f"{type(self).__name__} goes onto a source, not {type(inner).__name__}"
            )
        from millstream._run.pipeline import Pipeline, check

        longer = Pipeline(inner.head, (*inner.stages, self))
        check(longer.head, longer.stages)
        return longer

    def place(self, builder: Builder) -> None:
        """Adds this stage to the end of the pipeline that ``builder`` holds.

        A stage that the engine can run calls ``builder.add_native``. If it has a
        ``trace``, which does the same in XLA, it passes that on, and where
        ``builder.native`` is False it calls ``builder.add_traced`` instead.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement place()")


def keyed(tree: Tree, key: str, stage: str) -> Any:
    """What stands under ``key``: one array, or its field.

    Raises ``TypeError`` or ``KeyError`` naming the stage and the keys that exist.
    """
    if not isinstance(tree, Mapping):
        raise TypeError(
            f"{stage} needs samples that are dicts, to find {key!r} in them; "
            f"these are {type(tree).__name__}"
        )
    if key not in tree:
        raise KeyError(f"{stage}: there is no key {key!r}, only {sorted(tree)}")
    found = tree[key]
    if isinstance(found, Mapping | list | tuple):
        raise TypeError(f"{stage}: {key!r} is a {type(found).__name__}, not one array")
    return found


def with_key(tree: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The same dict with another value under ``key``."""
    return {**tree, key: value}
