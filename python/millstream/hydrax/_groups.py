"""Data groups: data descriptors with one batch size and one set of array shapes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

import numpy as np

from millstream._core.arguments import whole
from millstream.hydrax._layout import ArrayLayout, ArraySpec, layouts_of
from millstream.hydrax._schedule import SHUFFLES, GroupOrder

D = TypeVar("D")


class DataGroup(Sequence[D], Generic[D]):
    """Data descriptors, and the arrays that a batch of them fills.

    A descriptor is any value that says which item the loader function shall load, such
    as a path.

    Args:
      batch_size: The number of items per batch. If there are fewer items, their number
        is used instead, with a warning.
      data: The descriptors, one per item. A sequence is used as it is; any other
        iterable is converted to a list. Loader processes get a pickled copy.
      loader_arrays: For each array that the loader function fills, ``(shape of an item,
        NumPy dtype, JAX dtype)``.
      cache_arrays: The same for the arrays in the cache, which you pass to
        ``Batch.cache``. Without it the loader's arrays are cached automatically.
      cache_location: The cache's directory. It is created if it does not exist.
      cache_readonly: Whether the cache is only read, never written.
      seed: The seed of the shuffles. Item seeds count up from it.
      shuffle_first: Whether to shuffle the items of the first epoch.
      shuffle_later: What changes in later epochs. ``"repeat"``: nothing. ``"reseed"``:
        the seeds. ``"itemwise"``: the seeds and the order of the items.
        ``"batchwise"``: the order of the batches. ``"default"``: batchwise with a
        cache, itemwise without one.
      drop_last: Whether an epoch leaves out the items that do not fill a batch. With
        False the last batch is shorter.
    """

    def __init__(
        self,
        batch_size: int,
        data: Iterable[D],
        *,
        loader_arrays: Mapping[str, ArraySpec] | None = None,
        cache_arrays: Mapping[str, ArraySpec] | None = None,
        cache_location: str | os.PathLike[str] | None = None,
        cache_readonly: bool = False,
        seed: int = 0,
        shuffle_first: bool = False,
        shuffle_later: str = "default",
        drop_last: bool = True,
    ) -> None:
        if type(self) is not DataGroup:
            warnings.warn(
                f"{type(self).__name__} derives from hydrax.DataGroup, which is not "
                "supported. Use a DataGroup as an attribute instead.",
                SyntaxWarning,
                stacklevel=2,
            )
        if shuffle_later != "default" and shuffle_later not in SHUFFLES:
            raise ValueError(
                f"shuffle_later must be 'default' or one of {', '.join(SHUFFLES)}, not "
                f"{shuffle_later!r}"
            )
        if loader_arrays is None and cache_arrays is None:
            raise ValueError(
                "a DataGroup needs arrays. Pass loader_arrays= or cache_arrays="
            )
        if cache_location is None and cache_arrays is not None:
            raise ValueError("cache_arrays= also needs cache_location=")
        self._data = _as_sequence(data)
        size = _clamped(batch_size, len(self._data))
        if shuffle_later == "default":
            shuffle_later = "itemwise" if cache_location is None else "batchwise"
        self._order = GroupOrder(
            items=len(self._data),
            batch_size=size,
            seed=whole("seed", seed, 0, most=math.inf),
            shuffle_first=bool(shuffle_first),
            shuffle_later=shuffle_later,
            drop_last=bool(drop_last),
        )
        self._cache_location = None if cache_location is None else Path(cache_location)
        self._cache_readonly = bool(cache_readonly) or loader_arrays is None
        self._cache_direct = cache_location is not None and cache_arrays is None
        self._loader_layouts: dict[str, ArrayLayout] | None = None
        self._loader_size: int | None = None
        if loader_arrays is not None:
            self._loader_layouts, self._loader_size = layouts_of(
                size, loader_arrays, "loader_arrays"
            )
        self._cache_layouts: dict[str, ArrayLayout] | None = None
        self._cache_size: int | None = None
        if cache_arrays is not None:
            self._cache_layouts, self._cache_size = layouts_of(
                size, cache_arrays, "cache_arrays"
            )
        elif self._cache_direct:
            self._cache_layouts = self._loader_layouts
            self._cache_size = self._loader_size

    def _arrange_cache(self, names: list[str]) -> None:
        """Lays out the arrays of a cached batch in the order of ``names``."""
        assert self._cache_layouts is not None
        specs = {
            name: (shape[1:], stored, placed)
            for name, (shape, stored, placed, _, _) in self._cache_layouts.items()
        }
        ordered = {name: specs[name] for name in names}
        arranged, self._cache_size = layouts_of(
            self.batch_size, ordered, "cache_arrays"
        )
        self._cache_layouts = {name: arranged[name] for name in specs}

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, key: Any) -> Any:
        return self._data[key]

    def __repr__(self) -> str:
        arrays = self._loader_layouts or self._cache_layouts or {}
        return (
            f"<DataGroup of {len(self)} items in {self.batch_count} batches of "
            f"{self.batch_size}: {', '.join(arrays)}>"
        )

    @property
    def batch_size(self) -> int:
        """How many items a batch has."""
        return self._order.batch_size

    @property
    def batch_count(self) -> int:
        """How many batches an epoch has."""
        return self._order.batch_count

    @property
    def loader_layouts(self) -> MappingProxyType[str, ArrayLayout] | None:
        """``{name: (shape with the batch, NumPy dtype, JAX dtype, offset, count)}``.

        None without ``loader_arrays``.
        """
        layouts = self._loader_layouts
        return None if layouts is None else MappingProxyType(layouts)

    @property
    def cache_layouts(self) -> MappingProxyType[str, ArrayLayout] | None:
        """The same for the arrays in the cache; None without a cache."""
        layouts = self._cache_layouts
        return None if layouts is None else MappingProxyType(layouts)

    @property
    def loader_size(self) -> int | None:
        """The size of a loaded batch in bytes; None without ``loader_arrays``."""
        return self._loader_size

    @property
    def cache_size(self) -> int | None:
        """The size of a cached batch's arrays in bytes; None without a cache."""
        return self._cache_size


def _as_sequence(data: Any) -> Sequence[Any]:
    if isinstance(data, np.ndarray) and data.ndim > 0:
        return cast(Sequence[Any], data)
    if isinstance(data, Sequence):
        return data
    if isinstance(data, Iterable):
        return list(data)
    raise TypeError(f"data must be a sequence or an iterable, not {data!r}")


def _clamped(batch_size: Any, items: int) -> int:
    size = whole("batch_size", batch_size, 1)
    if items == 0:
        raise ValueError("data is empty: a group needs at least one item")
    if size > items:
        warnings.warn(
            f"batch_size {size} is more than the {items} items of the group. Batches "
            f"have {items} items instead.",
            UserWarning,
            stacklevel=4,
        )
    return min(size, items)
