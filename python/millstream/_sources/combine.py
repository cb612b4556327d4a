"""Sources that combine other sources: subsets, concatenations and zips."""

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
    recast,
    resolve_split,
)
from millstream._sources.source import SampleSource


class Combined(SampleSource):
    """A source that reads its samples from other sources, the components."""

    _components: Sequence[Any]

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        """Combines the arrays of the components in `jnp`, for data on an accelerator.

        ``arrays`` has one list of fields per component. The default concatenates them.
        """
        return [jnp.concatenate(columns) for columns in zip(*arrays, strict=True)]

    def arrays(self) -> list[Any] | None:
        arrays = [component.arrays() for component in self._components]
        known = [fields for fields in arrays if fields is not None]
        return self._combine(known) if len(known) == len(arrays) else None

    def device(self) -> Any:
        return self._components[0].device()

    @property
    def host_field_names(self) -> tuple[str, ...]:
        return self._components[0].host_field_names

    @property
    def prefetch_samples(self) -> int | None:
        counts = [component.prefetch_samples for component in self._components]
        return max((count for count in counts if count is not None), default=None)


@public
@dataclass(frozen=True, eq=False)
class Subset(Combined, OrderedSource):
    """Selected samples of a source.

    ``source[10:20]`` is a shorthand for it. Slices and ranges need no memory. Other
    indices need 8 bytes each. Building a subset reads no samples.

    Args:
      source: Any source of samples. If it is one part of a ``split``, indices count
        the samples of this part.
      indices: A slice, a range, a vector of integers, or a vector of booleans with one
        element per sample. Negative integers count from the end.
      ordering: "shuffle", "sequential", or an Order. None takes the source's order,
        which must not refer to samples by index (as Weighted, Listed and mixtures do).
    """

    source: Any
    indices: Any
    ordering: Any = None

    def __post_init__(self) -> None:
        whole = _checked("Subset", "the source", self.source)
        order = order_of_part("Subset", whole.order, self.ordering)
        self.__dict__["ordering"] = order
        selected = _selected(self.indices, whole.num_samples)
        if whole.origin is not None:
            self.with_origin(whole.origin)
        if isinstance(whole, Subset):  # a flat subset reads each sample in one step
            selected = _nested(whole.selected, selected)
            whole = whole._components[0]
            self.__dict__.update(source=whole, indices=selected)
        self.__dict__.update(_components=[whole], _selected=selected)
        native, tree, _ = whole.native()
        if isinstance(selected, range):
            native = _engine.sliced(
                native, selected.start, len(selected), selected.step
            )
        else:
            native = _engine.subset(native, selected)
        self._open(native, tree)

    @property
    def selected(self) -> range | np.ndarray:
        """The index in ``source`` of each sample."""
        selected: range | np.ndarray = self.__dict__["_selected"]
        return selected

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        indices = jnp.asarray(np.asarray(self.selected))
        return [jnp.take(array, indices, axis=0) for array in arrays[0]]


def _selected(indices: Any, count: int) -> range | np.ndarray:
    """Returns ``indices`` as a range or an int64 array, without negative indices."""
    if isinstance(indices, slice):
        indices = range(count)[indices]
    if isinstance(indices, range):
        if not indices:
            raise ValueError(f"Subset: {indices} selects none of {count} samples")
        if min(indices[0], indices[-1]) < 0 or max(indices[0], indices[-1]) >= count:
            raise IndexError(f"Subset: {indices} is out of range for {count} samples")
        return indices
    array = np.asarray(indices)
    if array.dtype == np.bool_ and array.shape == (count,):
        array = np.flatnonzero(array)
    if array.dtype.kind not in "iu" or array.ndim != 1 or array.size == 0:
        raise ValueError(
            "Subset: expected indices to be a slice, a vector of at least one integer "
            f"or a mask of {count} booleans, found {array.dtype}{list(array.shape)}"
        )
    wrong = np.flatnonzero((array < -count) | (array >= count))
    if len(wrong):
        raise IndexError(
            f"Subset: index {array[wrong[0]]} at position {wrong[0]} "
            f"is out of range for {count} samples"
        )
    selected = array.astype(np.int64)
    return np.where(selected < 0, selected + count, selected)


def _nested(inner: range | np.ndarray, outer: range | np.ndarray) -> range | np.ndarray:
    """Returns the elements of ``inner`` at the positions ``outer``."""
    if isinstance(inner, range) and isinstance(outer, range):
        first, step = inner[outer[0]], inner.step * outer.step
        return range(first, first + step * len(outer), step)
    if isinstance(inner, range):
        return inner.start + inner.step * np.asarray(outer)
    return inner[np.asarray(outer)]


@public
def concatenate(sources: Sequence[Any], *, ordering: Any = None) -> Concatenated:
    """Returns a source with the samples of all sources, one source after another.

    Args:
      sources: Sources whose samples have the same structure, dtypes and shapes.
      ordering: "shuffle", "sequential", or an Order over all samples. None takes the
        order of the sources, which must be the same.
    """
    return Concatenated(tuple(sources), ordering)


@dataclass(frozen=True, eq=False)
class Concatenated(Combined, OrderedSource):
    """The result of `concatenate`."""

    sources: tuple[Any, ...]
    ordering: Any = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("concatenate: sources is empty. Pass at least one source.")
        checked = [
            _checked("concatenate", f"source {i}", source)
            for i, source in enumerate(self.sources)
        ]
        if self.ordering is None:
            names = [f"source {i}" for i in range(len(checked))]
            order = _common_order("concatenate", names, checked)
            if len(names) > 1:
                order = order_of_part("concatenate", order, None)
            self.__dict__["ordering"] = order
        check_alike("concatenate", "source", checked)
        flat: list[Any] = []
        for source in checked:
            nested = isinstance(source, Concatenated)
            flat.extend(source.sources if nested else [source])
        self.__dict__.update(sources=tuple(flat), _components=flat)
        natives = [source.native()[0] for source in flat]
        self._open(_engine.concatenated(natives), flat[0].native()[1])


@public
def zip_sources(sources: Tree, *, ordering: Any = None) -> Zipped:
    """Returns a source whose sample i is the pytree of sample i of each source.

    The samples of ``zip_sources({"image": images, "label": labels})`` are
    ``{"image": ..., "label": ...}``.

    Args:
      sources: A pytree of sources with the same number of samples.
      ordering: "shuffle", "sequential", or an Order. None takes the order of the
        sources, which must be the same.
    """
    return Zipped(sources, ordering)


@dataclass(frozen=True, eq=False)
class Zipped(Combined, OrderedSource):
    """The result of `zip_sources`."""

    sources: Tree
    ordering: Any = None

    def __post_init__(self) -> None:
        paths, structure = jax.tree_util.tree_flatten_with_path(self.sources)
        if not paths:
            raise ValueError("zip_sources: sources is empty. Pass at least one source.")
        names = [name_of(path) for path, _ in paths]
        checked = [
            _checked("zip_sources", f"'{name}'", source)
            for name, (_, source) in zip(names, paths, strict=True)
        ]
        for name, source in zip(names, checked, strict=True):
            if source.num_samples != checked[0].num_samples:
                raise ValueError(
                    f"zip_sources: '{names[0]}' has {checked[0].num_samples} "
                    f"samples, '{name}' has {source.num_samples}. All sources must "
                    "have the same number of samples."
                )
            if source.host_field_names:
                raise ValueError(
                    f"zip_sources: '{name}' has host fields "
                    f"({', '.join(source.host_field_names)}), which a zipped source "
                    "does not support. Remove these fields from its samples."
                )
        shown = [f"'{name}'" for name in names]
        if self.ordering is None:
            self.__dict__["ordering"] = _common_order("zip_sources", shown, checked)
        check_device("zip_sources", shown, checked)
        natives, trees, first = [], [], 0
        for source in checked:
            native, tree, fields = source.native()
            # Two sources may use the same field name, so fields get numbers for names.
            renamed = {i: (f"{first + i}",) for i in range(len(fields))}
            natives.append(recast(native, renamed))
            trees.append(jax.tree.map(lambda position, f=first: f + position, tree))
            first += len(fields)
        self.__dict__["_components"] = checked
        self._open(_engine.zipped(natives), jax.tree.unflatten(structure, trees))

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        return [array for fields in arrays for array in fields]


def _checked(caller: str, what: str, source: Any) -> Any:
    return resolve_split(checked_source(caller, what, source))


def _common_order(caller: str, names: list[str], sources: list[Any]) -> Any:
    first = sources[0].order
    for name, source in zip(names, sources, strict=True):
        if source.order != first:
            raise ValueError(
                f"{caller}: {names[0]} has the order {first}, {name} has "
                f"{source.order}. Pass ordering=."
            )
    return first
