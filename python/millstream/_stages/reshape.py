"""Stages that reshape and rename fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._sources.ordered import names_of
from millstream._stages.stage import Key, Stage, check_position, keyed, with_key

if TYPE_CHECKING:
    from millstream._run.builder import Builder


@public
@dataclass(frozen=True, eq=False)
class FlattenTransform(Stage):
    """Reshapes ``data_key``: merges all axes from ``start_index`` on into one.

    After batching, axis 0 is the batch, which cannot be merged.
    """

    data_key: Key
    start_index: int = 1

    def __post_init__(self) -> None:
        first = whole(f"{type(self).__name__}: start_index", self.start_index, 0)
        object.__setattr__(self, "start_index", first)

    def _first_axis(self, batched: bool) -> int:
        """Returns the first axis to merge, as an axis of one sample."""
        first = self.start_index - (1 if batched else 0)
        if first < 0:
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): start_index "
                f"{self.start_index} would merge the axis of the batch. Use at least 1."
            )
        return first

    def place(self, builder: Builder) -> None:
        if not builder.native:
            builder.add_traced(self.trace)
            return
        field, first = builder.field(self.data_key), self._first_axis(builder.batched)
        builder.add_native([_engine.flatten(field, first)], trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        x = keyed(value, self.data_key, type(self).__name__)
        kept = self._first_axis(batched) + (1 if batched else 0)
        if kept > x.ndim:
            raise ValueError(
                f"{type(self).__name__}({self.data_key!r}): axis {self.start_index} is "
                f"out of range for shape {x.shape}"
            )
        return with_key(value, self.data_key, x.reshape(*x.shape[:kept], -1))


@public
@dataclass(frozen=True, eq=False)
class FlattenImageTransform(FlattenTransform):
    """Reshapes each image under ``data_key`` to a vector, before or after batching."""

    data_key: Key = "image"
    start_index: int = field(default=0, init=False)

    def _first_axis(self, batched: bool) -> int:
        return 0


@public
@dataclass(frozen=True, eq=False)
class RenameTransform(Stage):
    """Renames keys: ``{"old": "new"}``.

    The keys of a tuple are its positions. All of them get names, and the tuple becomes
    a dict: ``{0: "image", 1: "label"}``.
    """

    renames: Mapping[Key, str]

    def __post_init__(self) -> None:
        if not isinstance(self.renames, Mapping):
            raise TypeError(
                'RenameTransform: renames must be a dict, {"old": "new"}, '
                f"not {self.renames!r}"
            )
        for key, new in self.renames.items():
            if not isinstance(new, str):
                raise TypeError(
                    f"RenameTransform: the new name of {key!r} must be a str, "
                    f"not {new!r}"
                )

    def _renamed(self, tree: Tree, stage: str) -> dict[str, Any]:
        if isinstance(tree, list | tuple):
            for key in self.renames:
                check_position(tree, key, stage)
            if len(self.renames) != len(tree):
                raise ValueError(
                    f"{stage}: {dict(self.renames)} does not name all {len(tree)} "
                    f"values of a {type(tree).__name__}. Name each position."
                )
            tree = dict(enumerate(tree))
        if not isinstance(tree, Mapping):
            raise TypeError(
                f"{stage} needs samples that are dicts or tuples, not "
                f"{type(tree).__name__}"
            )
        for key in self.renames:
            if key not in tree:
                raise KeyError(
                    f"{stage}: unknown key {key!r}: expected one of "
                    f"{sorted(tree, key=str)}"
                )
        renamed = {self.renames.get(key, key): value for key, value in tree.items()}
        if len(renamed) != len(tree):
            raise ValueError(
                f"{stage}: {dict(self.renames)} gives two of "
                f"{sorted(tree, key=str)} the same name. Choose different names."
            )
        return renamed

    def place(self, builder: Builder) -> None:
        if not builder.native:
            builder.add_traced(self.trace)
            return
        tree, names = builder.tree, builder.names
        renamed = self._renamed(tree, builder.stage)
        names_of(builder.stage, renamed)
        after = list(names)
        for key, new in self.renames.items():
            # The engine names the values of a named tuple by its fields.
            old = tree._fields[key] if hasattr(tree, "_fields") else str(key)
            for position in jax.tree.leaves(tree[key]):
                after[position] = new + names[position][len(old) :]
        changed = {a: b for a, b in zip(names, after, strict=True) if a != b}
        builder.add_native([_engine.rename(changed)], renamed, after, trace=self.trace)

    def trace(self, value: Tree, mask: Any, batched: bool) -> Tree:
        return self._renamed(value, type(self).__name__)
