"""Data sets in a random order, which the engine computes from a key for each index."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from millstream import _engine
from millstream.loadax._arguments import ArgumentError, whole
from millstream.loadax._dataset import Indexed, View

T = TypeVar("T")
Words = tuple[int, int]


def _words(key: Any) -> Words:
    """The two words of a key: an int, a raw key or a typed one."""
    from millstream._run.state import is_traced, key_words

    high, low = key_words(key)
    if is_traced(high) or is_traced(low):
        raise TypeError(
            "the key of a data set must be concrete, not traced. Create the data set "
            "outside jit."
        )
    return int(high), int(low)


class _Drawn(View[T]):
    """A view whose item i is an item of ``_inner`` that depends on (key, epoch, i)."""

    def __init__(self, dataset: Indexed[T], key: Any, length: int | None) -> None:
        super().__init__(dataset)
        self._key = _words(key)
        self._length = len(self._inner) if length is None else length
        self._epoch = 0
        self._order = self._make_order() if self._length else None

    def _make_order(self) -> _engine.Order:
        return _engine.shuffle(len(self._inner))

    def __len__(self) -> int:
        return self._length

    def _item(self, index: int) -> T:
        order = self._order
        assert order is not None  # an empty data set has no valid index
        item: T = self._inner[order.sample_at(self._key, self._epoch, index)]
        return item

    def at_epoch(self, epoch: int) -> Self:
        view = self._over(self._inner.at_epoch(epoch))
        view._epoch = whole("epoch", epoch, 0)
        return view

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_order": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._order = self._make_order() if self._length else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r}, {self._length} items)"


class ShuffledDataset(_Drawn[T]):
    """Every item once, in a random order that depends on ``key`` (0 by default).

    The order stays the same from one iteration to the next. ``at_epoch(n)`` returns the
    same items in the order of epoch n.
    """

    def __init__(self, dataset: Indexed[T], key: Any = None) -> None:
        super().__init__(dataset, key, None)


class SampledDatasetWithoutReplacement(_Drawn[T]):
    """``sample_size`` different items, drawn at random with ``key``."""

    def __init__(self, dataset: Indexed[T], sample_size: int, key: Any = None) -> None:
        super().__init__(dataset, key, whole("sample_size", sample_size, 0))
        if self._length > len(self._inner):
            raise ArgumentError(
                f"{sample_size} items cannot be drawn from {len(self._inner)} "
                "without replacement. Use SampledDatasetWithReplacement, or a smaller "
                "sample_size."
            )


class SampledDatasetWithReplacement(_Drawn[T]):
    """``sample_size`` items, drawn at random with ``key``. Items may repeat."""

    def __init__(self, dataset: Indexed[T], sample_size: int, key: Any = None) -> None:
        super().__init__(dataset, key, whole("sample_size", sample_size, 0))

    def _make_order(self) -> _engine.Order:
        if len(self._inner) == 0:
            raise ArgumentError(
                f"{self._length} items cannot be drawn from an empty data set"
            )
        return _engine.replacement(len(self._inner), self._length)


SampledDataset = SampledDatasetWithoutReplacement
