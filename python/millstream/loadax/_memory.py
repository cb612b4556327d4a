"""Data sets in memory: sequences and ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from millstream.loadax._arguments import ArgumentError, whole
from millstream.loadax._dataset import Dataset, Indexed

T = TypeVar("T")


class InMemoryDataset(Dataset[T]):
    """The items of a sequence, which is not copied."""

    def __init__(self, items: Indexed[T] | Iterable[T]) -> None:
        if isinstance(items, Mapping):
            raise TypeError(
                f"items must be a sequence, not a {type(items).__name__}. Pass "
                "list(items.values()) to use its values."
            )
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            items = list(items)
        self._items = cast("Indexed[T]", items)

    def __len__(self) -> int:
        return len(self._items)

    def _item(self, index: int) -> T:
        return self._items[index]

    def __repr__(self) -> str:
        shown = [repr(self._items[i]) for i in range(min(2, len(self)))]
        if len(self) > 2:
            shown.append("...")
        return f"{type(self).__name__}([{', '.join(shown)}], {len(self)} items)"


class SimpleDataset(InMemoryDataset[T]):
    """The items of a list."""


class RangeDataset(Dataset[int]):
    """The integers of ``range(start, end, step)``."""

    def __init__(self, start: int, end: int, step: int = 1) -> None:
        step = whole("step", step, 1)
        if start >= end:
            raise ArgumentError(f"start must be below end, not {start} and {end}")
        self._range = range(start, end, step)

    def __len__(self) -> int:
        return len(self._range)

    def _item(self, index: int) -> int:
        return self._range[index]

    def __repr__(self) -> str:
        numbers = self._range
        return f"RangeDataset({numbers.start}, {numbers.stop}, step={numbers.step})"
