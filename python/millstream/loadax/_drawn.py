"""Data sets in an order drawn from a key, which the engine computes without a table."""

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
        raise TypeError("a data set's key has to be known, not traced inside of jit")
    return int(high), int(low)


class _Drawn(View[T]):
    """Item i is the item at a place that (key, epoch, i) decide."""

    def __init__(self, dataset: Indexed[T], key: Any, length: int | None) -> None:
        super().__init__(dataset)
        self._key = _words(key)
        self._length = len(self._inner) if length is None else length
        self._epoch = 0
        self._order = self._ordered() if self._length else None

    def _ordered(self) -> _engine.Order:
        return _engine.shuffle(len(self._inner))

    def __len__(self) -> int:
        return self._length

    def _item(self, index: int) -> T:
        order = self._order
        assert order is not None  # no index lies in an empty data set
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
        self._order = self._ordered() if self._length else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r}, {self._length} items)"


class ShuffledDataset(_Drawn[T]):
    """Every item once, in an order drawn from ``key``; without one, from the key 0.

    The order is one for ever; ``at_epoch(n)`` is the same data in the order of epoch n.
    """

    def __init__(self, dataset: Indexed[T], key: Any = None) -> None:
        super().__init__(dataset, key, None)


class SampledDatasetWithoutReplacement(_Drawn[T]):
    """``sample_size`` items drawn by ``key``, none of them twice."""

    def __init__(self, dataset: Indexed[T], sample_size: int, key: Any = None) -> None:
        super().__init__(dataset, key, whole("sample_size", sample_size, 0))
        if self._length > len(self._inner):
            raise ArgumentError(
                f"{sample_size} items cannot be drawn from {len(self._inner)} "
                "without replacement"
            )


class SampledDatasetWithReplacement(_Drawn[T]):
    """``sample_size`` items drawn by ``key``, each of them any item."""

    def __init__(self, dataset: Indexed[T], sample_size: int, key: Any = None) -> None:
        super().__init__(dataset, key, whole("sample_size", sample_size, 0))

    def _ordered(self) -> _engine.Order:
        if len(self._inner) == 0:
            raise ArgumentError(f"{self._length} items cannot be drawn from none")
        return _engine.replacement(len(self._inner), self._length)


SampledDataset = SampledDatasetWithoutReplacement
