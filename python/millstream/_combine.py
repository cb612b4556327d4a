"""Sources made of sources: some of their samples, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from millstream import _engine
from millstream._pipeline import SampleSource, Tree
from millstream._samples import OrderedSource, described, name_of, own, recast


class _Combined(OrderedSource):
    """A source that others are read for."""

    def _parts(self) -> list[SampleSource]:
        raise NotImplementedError

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        """The same in `jnp`, for samples that an accelerator holds."""
        raise NotImplementedError

    def arrays(self) -> list[Any] | None:
        parts = [part.arrays() for part in self._parts()]
        known = [part for part in parts if part is not None]
        return self._combine(known) if len(known) == len(parts) else None

    def device(self) -> Any:
        return self._parts()[0].device()

    @property
    def prefetch_samples(self) -> int | None:
        asked = [part.prefetch_samples for part in self._parts()]
        return max((count for count in asked if count is not None), default=None)


@dataclass(eq=False, repr=False)
class Subset(_Combined):
    """Some samples of a source, in the order in which they are listed.

    ``source[10:20]`` is short for it. Slices and ranges take no memory, other indices
    8 bytes each. Nothing is read before it is asked for.

    Args:
      source: Any source of samples; of a part of a split none but its samples.
      indices: A slice, a range, a vector of integers, or a mask of as many booleans as
        there are samples. Negative ones count from the end.
      ordering: "shuffle", "sequential", or an Order; None for the source's own.
    """

    source: Any
    indices: Any
    ordering: Any = None

    def __post_init__(self) -> None:
        self._whole = _checked("Subset", "the source", self.source)
        if self.ordering is None:
            self.__dict__["ordering"] = self._whole.order
        self._chosen = _chosen(self.indices, self._whole.num_samples)
        native, tree, _ = self._whole.native()
        if isinstance(self._chosen, range):
            first, step = self._chosen.start, self._chosen.step
            native = _engine.sliced(native, first, len(self._chosen), step)
        else:
            native = _engine.subset(native, self._chosen)
        self._open(native, tree)

    def _parts(self) -> list[SampleSource]:
        return [self._whole]

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        indices = jnp.asarray(np.asarray(self._chosen))
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


def concatenate(sources: Sequence[Any], *, ordering: Any = None) -> Concatenated:
    """One source of the samples of several, one source after the other.

    Args:
      sources: Sources whose samples have one structure, dtypes and shapes.
      ordering: "shuffle", "sequential", or an Order over all samples; None for the
        ordering that the sources share.
    """
    return Concatenated(tuple(sources), ordering)


@dataclass(eq=False, repr=False)
class Concatenated(_Combined):
    """What `concatenate` makes."""

    sources: tuple[Any, ...]
    ordering: Any = None

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("concatenate: there are no sources")
        self._own = [
            _checked("concatenate", f"source {i}", source)
            for i, source in enumerate(self.sources)
        ]
        if self.ordering is None:
            names = [f"source {i}" for i in range(len(self._own))]
            self.__dict__["ordering"] = _common_order("concatenate", names, self._own)
        _check_alike(self._own)
        _check_device("concatenate", self._own)
        natives = [source.native()[0] for source in self._own]
        self._open(_engine.concatenated(natives), self._own[0].native()[1])

    def _parts(self) -> list[SampleSource]:
        return self._own

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        return [jnp.concatenate(columns) for columns in zip(*arrays, strict=True)]


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


@dataclass(eq=False, repr=False)
class Zipped(_Combined):
    """What `zip_sources` makes."""

    sources: Tree
    ordering: Any = None

    def __post_init__(self) -> None:
        paths, structure = jax.tree_util.tree_flatten_with_path(self.sources)
        if not paths:
            raise ValueError("zip_sources: there are no sources")
        names = [name_of(path) for path, _ in paths]
        self._own = [
            _checked("zip_sources", f"'{name}'", source)
            for name, (_, source) in zip(names, paths, strict=True)
        ]
        for name, source in zip(names, self._own, strict=True):
            if source.num_samples != self._own[0].num_samples:
                raise ValueError(
                    f"zip_sources: '{names[0]}' has {self._own[0].num_samples} "
                    f"samples, '{name}' has {source.num_samples}"
                )
        if self.ordering is None:
            shown = [f"'{name}'" for name in names]
            self.__dict__["ordering"] = _common_order("zip_sources", shown, self._own)
        _check_device("zip_sources", self._own)
        natives, trees, first = [], [], 0
        for source in self._own:
            native, tree, fields = source.native()
            # Fields of several sources may have one name; the tree tells them apart.
            renamed = {i: (f"{first + i}",) for i in range(len(fields))}
            natives.append(recast(native, renamed))
            trees.append(jax.tree.map(lambda position, f=first: f + position, tree))
            first += len(fields)
        whole = jax.tree.unflatten(structure, trees)
        self._open(_engine.zipped(natives), whole)

    def _parts(self) -> list[SampleSource]:
        return self._own

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        return [array for part in arrays for array in part]


def _checked(who: str, what: str, source: Any) -> Any:
    if not isinstance(source, SampleSource):
        raise TypeError(
            f"{who}: {what} is of type {type(source).__name__}, not a source of "
            "samples; stages go after it"
        )
    return own(source)


def _common_order(who: str, names: list[str], sources: list[Any]) -> Any:
    first = sources[0].order
    for name, source in zip(names, sources, strict=True):
        if source.order != first:
            raise ValueError(
                f"{who}: {names[0]} is ordered by {first}, {name} by {source.order}: "
                "say ordering="
            )
    return first


def _check_device(who: str, sources: list[Any]) -> None:
    devices = {source.device() for source in sources}
    if len(devices) > 1:
        raise ValueError(f"{who}: samples are held by different devices: {devices}")


def _check_alike(sources: list[Any]) -> None:
    native, tree, _ = sources[0].native()
    structure = jax.tree.structure(tree)
    for i, source in enumerate(sources[1:], start=1):
        other, other_tree, _ = source.native()
        its: Any = jax.tree.structure(other_tree)
        if its != structure:
            raise ValueError(
                f"concatenate: samples of source 0 are {structure}, "
                f"those of source {i} are {its}"
            )
        for a, b in zip(native.schema, other.schema, strict=True):
            if a != b:
                raise ValueError(
                    f"concatenate: '{a[0]}' is {described(a)} in source 0 "
                    f"and {described(b)} in source {i}"
                )
