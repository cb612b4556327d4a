"""Sources made of sources: some of their samples, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream import _engine
from millstream._core.description import Tree
from millstream._core.public import public
from millstream._sources.ordered import (
    OrderedSource,
    check_alike,
    check_device,
    checked_source,
    name_of,
    order_of_part,
    own,
    recast,
)
from millstream._sources.source import SampleSource


class Combined(SampleSource):
    """A source that others are read for."""

    _parts: Sequence[Any]

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        """The same in `jnp`, for samples that an accelerator holds.

        One part after the other, unless a source does otherwise.
        """
        return [jnp.concatenate(columns) for columns in zip(*arrays, strict=True)]

    def arrays(self) -> list[Any] | None:
        parts = [part.arrays() for part in self._parts]
        known = [part for part in parts if part is not None]
        return self._combine(known) if len(known) == len(parts) else None

    def device(self) -> Any:
        return self._parts[0].device()

    @property
    def beside(self) -> tuple[str, ...]:
        return self._parts[0].beside

    @property
    def prefetch_samples(self) -> int | None:
        asked = [part.prefetch_samples for part in self._parts]
        return max((count for count in asked if count is not None), default=None)


@public
@dataclass(frozen=True, eq=False)
class Subset(Combined, OrderedSource):
    """Some samples of a source, in the order in which they are listed.

    ``source[10:20]`` is short for it. Slices and ranges take no memory, other indices
    8 bytes each. Nothing is read before it is asked for.

    Args:
      source: Any source of samples; of a part of a split none but its samples.
      indices: A slice, a range, a vector of integers, or a mask of as many booleans as
        there are samples. Negative ones count from the end.
      ordering: "shuffle", "sequential", or an Order; None for the source's own, unless
        that is about samples by their numbers (Weighted, Listed, a mixture).
    """

    source: Any
    indices: Any
    ordering: Any = None

    def __post_init__(self) -> None:
        whole = _checked("Subset", "the source", self.source)
        order = order_of_part("Subset", whole.order, self.ordering)
        self.__dict__["ordering"] = order
        chosen = _chosen(self.indices, whole.num_samples)
        if isinstance(whole, Subset):  # of the same samples, one step less to each
            chosen = _chosen_of(whole.__dict__["_chosen"], chosen)
            whole = whole._parts[0]
            self.__dict__.update(source=whole, indices=chosen)
        self.__dict__.update(_parts=[whole], _chosen=chosen)
        native, tree, _ = whole.native()
        if isinstance(chosen, range):
            native = _engine.sliced(native, chosen.start, len(chosen), chosen.step)
        else:
            native = _engine.subset(native, chosen)
        self._open(native, tree)

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        indices = jnp.asarray(np.asarray(self.__dict__["_chosen"]))
        return [jnp.take(array, indices, axis=0) for array in arrays[0]]


def _chosen(indices: Any, count: int) -> range | np.ndarray:
    """Indices of ``count`` samples, not negative, as a range or as int64."""
    if isinstance(indices, slice):
        indices = range(count)[indices]
    if isinstance(indices, range):
        if not indices:
            raise ValueError(f"Subset: {indices} of {count} samples is empty")
        if min(indices[0], indices[-1]) < 0 or max(indices[0], indices[-1]) >= count:
            raise IndexError(f"Subset: {indices} is not within {count} samples")
        return indices
    given = np.asarray(indices)
    if given.dtype == np.bool_ and given.shape == (count,):
        given = np.flatnonzero(given)
    if given.dtype.kind not in "iu" or given.ndim != 1 or given.size == 0:
        raise ValueError(
            "Subset: indices are a slice, a vector of integers or a mask of "
            f"{count}, at least one; found {given.dtype}{list(given.shape)}"
        )
    wrong = np.flatnonzero((given < -count) | (given >= count))
    if len(wrong):
        raise IndexError(
            f"Subset: index {given[wrong[0]]} at position {wrong[0]} "
            f"is not within {count} samples"
        )
    chosen = given.astype(np.int64)
    return np.where(chosen < 0, chosen + count, chosen)


def _chosen_of(
    inner: range | np.ndarray, outer: range | np.ndarray
) -> range | np.ndarray:
    """Those of ``inner`` that ``outer`` lists by their positions."""
    if isinstance(inner, range) and isinstance(outer, range):
        first, step = inner[outer[0]], inner.step * outer.step
        return range(first, first + step * len(outer), step)
    if isinstance(inner, range):
        return inner.start + inner.step * np.asarray(outer)
    return inner[np.asarray(outer)]


@public
def concatenate(sources: Sequence[Any], *, ordering: Any = None) -> Concatenated:
    """One source of the samples of several, one source after the other.

    Args:
      sources: Sources whose samples have one structure, dtypes and shapes.
      ordering: "shuffle", "sequential", or an Order over all samples; None for the
        ordering that the sources share.
    """
    return Concatenated(tuple(sources), ordering)


@dataclass(frozen=True, eq=False)
class Concatenated(Combined, OrderedSource):
    """What `concatenate` makes."""

    sources: tuple[Any, ...]
    ordering: Any = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("concatenate: there are no sources")
        given = [
            _checked("concatenate", f"source {i}", source)
            for i, source in enumerate(self.sources)
        ]
        if self.ordering is None:
            names = [f"source {i}" for i in range(len(given))]
            order = _common_order("concatenate", names, given)
            if len(names) > 1:
                order = order_of_part("concatenate", order, None)
            self.__dict__["ordering"] = order
        check_alike("concatenate", "source", given)
        parts: list[Any] = []
        for source in given:
            nested = isinstance(source, Concatenated)
            parts.extend(source.sources if nested else [source])
        self.__dict__.update(sources=tuple(parts), _parts=parts)
        natives = [source.native()[0] for source in parts]
        self._open(_engine.concatenated(natives), parts[0].native()[1])


@public
def zip_sources(sources: Tree, *, ordering: Any = None) -> Zipped:
    """One source whose samples are trees of the samples of several.

    ``zip_sources({"image": images, "label": labels})`` gives
    ``{"image": ..., "label": ...}``.

    Args:
      sources: A pytree of sources of as many samples.
      ordering: "shuffle", "sequential", or an Order; None for the ordering that the
        sources share.
    """
    return Zipped(sources, ordering)


@dataclass(frozen=True, eq=False)
class Zipped(Combined, OrderedSource):
    """What `zip_sources` makes."""

    sources: Tree
    ordering: Any = None

    def __post_init__(self) -> None:
        paths, structure = jax.tree_util.tree_flatten_with_path(self.sources)
        if not paths:
            raise ValueError("zip_sources: there are no sources")
        names = [name_of(path) for path, _ in paths]
        parts = [
            _checked("zip_sources", f"'{name}'", source)
            for name, (_, source) in zip(names, paths, strict=True)
        ]
        for name, source in zip(names, parts, strict=True):
            if source.num_samples != parts[0].num_samples:
                raise ValueError(
                    f"zip_sources: '{names[0]}' has {parts[0].num_samples} "
                    f"samples, '{name}' has {source.num_samples}"
                )
            if source.beside:
                raise ValueError(
                    f"zip_sources: samples of '{name}' have values that are no arrays "
                    f"({', '.join(source.beside)}), which a zipped source cannot carry"
                )
        shown = [f"'{name}'" for name in names]
        if self.ordering is None:
            self.__dict__["ordering"] = _common_order("zip_sources", shown, parts)
        check_device("zip_sources", shown, parts)
        natives, trees, first = [], [], 0
        for source in parts:
            native, tree, fields = source.native()
            # Fields of several sources may have one name; the tree tells them apart.
            renamed = {i: (f"{first + i}",) for i in range(len(fields))}
            natives.append(recast(native, renamed))
            trees.append(jax.tree.map(lambda position, f=first: f + position, tree))
            first += len(fields)
        self.__dict__["_parts"] = parts
        self._open(_engine.zipped(natives), jax.tree.unflatten(structure, trees))

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        return [array for part in arrays for array in part]


def _checked(who: str, what: str, source: Any) -> Any:
    return own(checked_source(who, what, source))


def _common_order(who: str, names: list[str], sources: list[Any]) -> Any:
    first = sources[0].order
    for name, source in zip(names, sources, strict=True):
        if source.order != first:
            raise ValueError(
                f"{who}: {names[0]} is ordered by {first}, {name} by {source.order}: "
                "say ordering="
            )
    return first
