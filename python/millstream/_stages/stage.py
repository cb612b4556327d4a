"""What a stage is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream import _engine
from millstream._core.description import Description, Tree
from millstream._sources.source import Source

if TYPE_CHECKING:
    from millstream._run.pipeline import Pipeline
    from millstream._stages.python_map import Bound


class Stage(Description):
    """Something done to samples or to batches of them.

    A stage is a description. It says what the engine is to do (``native``) and the same
    for XLA (``trace``), which is used where an earlier stage could not be native.
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

    def native(
        self, tree: Tree, names: list[str], batched: bool
    ) -> tuple[list[_engine.Transform], Tree, list[str]] | None:
        """The engine's transforms and the tree and names after them; None if none."""
        del tree, names, batched
        return None

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        """What becomes of ``value`` in XLA: one sample, or a batch of them."""
        raise TypeError(f"{type(self).__name__} cannot be traced")


class WorkerStage(Stage):
    """A stage that workers do. Its modules are loaded only where there is one."""

    workers: int

    def bound(self, plan: _engine.Plan, tree: Tree, number: int) -> Bound:
        """The engine's transform after the pipeline ``plan``, which has no rows yet."""
        raise NotImplementedError


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
