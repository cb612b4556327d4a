"""Data groups: data descriptors with one batch size and one set of array shapes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np

from millstream._core.arguments import choice, whole
from millstream.hydrax._layout import ArraySpec, Layouts, layouts_of, size_of
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
        warn_of_subclass(self, DataGroup)
        choice("shuffle_later", shuffle_later, "default", *SHUFFLES)
        if loader_arrays is None and cache_arrays is None:
            raise ValueError(
                "either loader_arrays or cache_arrays must be specified. Pass "
                "loader_arrays= or cache_arrays="
            )
        if cache_location is None and cache_arrays is not None:
            raise ValueError("cache_location is required if cache_arrays are specified")
        self._data = _as_sequence(data)
        size = _clamped(batch_size, len(self._data))
        if shuffle_later == "default":
            shuffle_later = "itemwise" if cache_location is None else "batchwise"
        self._order = GroupOrder(
            data_len=len(self._data),
            batch_size=size,
            seed=whole("seed", seed, 0, most=math.inf),
            shuffle_first=bool(shuffle_first),
            shuffle_later=shuffle_later,
            drop_last=bool(drop_last),
        )
        self._cache_location = None if cache_location is None else Path(cache_location)
        self._cache_readonly = bool(cache_readonly) or loader_arrays is None
        self._cache_direct = cache_location is not None and cache_arrays is None
        self._loader_layouts = layouts_of(size, loader_arrays, "loader_arrays")
        self._cache_layouts = layouts_of(size, cache_arrays, "cache_arrays")
        if self._cache_direct:
            self._cache_layouts = self._loader_layouts

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, key: Any) -> Any:
        return self._data[key]

    def __repr__(self) -> str:
        arrays = list(self._loader_layouts or self._cache_layouts or ())
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
    def loader_layouts(self) -> Layouts | None:
        """``{name: (shape with the batch, NumPy dtype, JAX dtype, offset, count)}``.

        None without ``loader_arrays``.
        """
        return self._loader_layouts

    @property
    def cache_layouts(self) -> Layouts | None:
        """The same for the arrays in the cache; None without a cache."""
        return self._cache_layouts

    @property
    def loader_size(self) -> int | None:
        """The size of a loaded batch in bytes; None without ``loader_arrays``."""
        return None if self._loader_layouts is None else size_of(self._loader_layouts)

    @property
    def cache_size(self) -> int | None:
        """The size of a cached batch's arrays in bytes; None without a cache."""
        return None if self._cache_layouts is None else size_of(self._cache_layouts)


def warn_of_subclass(given: object, expected: type) -> None:
    """Warns if ``given`` is of a class that derives from ``expected``."""
    if type(given) is not expected:
        warnings.warn(
            f"{type(given).__name__} derives from hydrax.{expected.__name__}. This is "
            f"not supported. Use a {expected.__name__} as an attribute instead.",
            SyntaxWarning,
            stacklevel=3,
        )


def _as_sequence(data: Any) -> Sequence[Any]:
    if isinstance(data, Sequence):
        return data
    if isinstance(data, np.ndarray) and data.ndim > 0:
        return cast(Sequence[Any], data)
    if isinstance(data, Iterable):
        return list(data)
    raise TypeError(f"data of type {type(data).__name__} is not a sequence or iterable")


def _clamped(batch_size: Any, items: int) -> int:
    size = whole("batch size must be at least 1: batch_size", batch_size, 1)
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
