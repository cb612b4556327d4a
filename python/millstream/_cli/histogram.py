"""Histograms as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream._formats.schema import Field

_BINS = 10
_MOST_VALUES = 16  # integers that get a bar each
_BAR = 40


class Range:
    """The minimum, maximum and mean of values that are added in batches."""

    def __init__(self) -> None:
        self.low: Any = None
        self.high: Any = None
        self.count = 0
        self.not_finite = 0
        self._total = 0.0

    def add(self, values: NDArray[Any]) -> None:
        """Adds values."""
        values = numbers(values)
        finite = _finite(values)
        self.not_finite += values.size - finite.size
        if finite.size == 0:
            return
        low, high = finite.min().item(), finite.max().item()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        self.count += finite.size
        with np.errstate(over="ignore"):
            self._total += float(finite.sum(dtype=np.float64))

    @property
    def mean(self) -> float:
        return self._total / self.count if self.count else math.nan


class Histogram:
    """How many values fall into each of several bins of a range."""

    def __init__(self, values: Range, *, whole: bool) -> None:
        self._edges = _whole_edges(values) if whole else _edges(values)
        self._single = whole and values.high - values.low < _MOST_VALUES
        self._high = values.high
        self._whole = whole
        self.counts = [0] * len(self._edges)

    def add(self, values: NDArray[Any]) -> None:
        """Adds values, which must be within the range."""
        flat = _finite(numbers(values))
        edges = [flat.dtype.type(edge) for edge in self._edges]
        # Comparing with each edge is several times faster than np.searchsorted.
        least = [int(np.count_nonzero(flat >= edge)) for edge in edges]
        counts = [a - b for a, b in zip(least, [*least[1:], 0], strict=True)]
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]

    def lines(self) -> list[str]:
        """Returns a line for each bin: its range, a bar and the count."""
        labels = self._labels()
        width = max(len(label) for label in labels)
        most = max(*self.counts, 1)
        lines = []
        for label, count in zip(labels, self.counts, strict=True):
            bar = "#" * (math.ceil(count * _BAR / most))
            lines.append(f"{label:>{width}}  {bar:<{_BAR}} {count:,}".rstrip())
        return lines

    def _labels(self) -> list[str]:
        if self._single:
            return [str(edge) for edge in self._edges]
        ends = [*self._edges[1:], self._high]
        pairs = list(zip(self._edges, ends, strict=True))
        if self._whole:
            last = len(pairs) - 1
            pairs = [(a, b if i == last else b - 1) for i, (a, b) in enumerate(pairs)]
            return [str(a) if a == b else f"{a} to {b}" for a, b in pairs]
        return [f"{a:.4g}" if a == b else f"{a:.4g} to {b:.4g}" for a, b in pairs]


def has_histogram(field: Field) -> bool:
    """Whether the values of a field can be sorted: complex numbers cannot."""
    return not field.dtype.startswith("complex")


def is_whole(field: Field) -> bool:
    """Whether a field holds integers or booleans."""
    return field.dtype.startswith(("int", "uint", "bool"))


def histograms(
    batches: Iterable[list[NDArray[Any]]], fields: list[Field]
) -> Iterator[tuple[Field, Range, Histogram | None]]:
    """Yields the range and the histogram of each field. Iterates ``batches`` twice."""
    shown = [i for i, field in enumerate(fields) if has_histogram(field)]
    ranges = {i: Range() for i in shown}
    for batch in batches:
        for i in shown:
            ranges[i].add(batch[i])
    bins = {
        i: Histogram(ranges[i], whole=is_whole(fields[i]))
        for i in shown
        if ranges[i].count
    }
    for batch in batches:
        for i, histogram in bins.items():
            histogram.add(batch[i])
    for i in shown:
        yield fields[i], ranges[i], bins.get(i)


def numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Returns the values as a vector of a dtype that NumPy computes with quickly."""
    flat = values.reshape(-1)
    if flat.dtype == np.bool_:
        return flat.view(np.uint8)
    if flat.dtype.kind in "iuf" and flat.dtype != np.float16:
        return flat
    return flat.astype(np.float32)


def _finite(flat: NDArray[Any]) -> NDArray[Any]:
    if flat.dtype.kind in "iu":
        return flat
    finite = np.isfinite(flat)
    return flat if finite.all() else flat[finite]


def _whole_edges(values: Range) -> list[int]:
    span = values.high - values.low + 1
    width = 1 if span <= _MOST_VALUES else -(-span // _BINS)
    return list(range(values.low, values.high + 1, width))


def _edges(values: Range) -> list[float]:
    if values.low == values.high:
        return [values.low]
    low, high = values.low, values.high
    # Interpolated, because high - low may overflow.
    edges = {low * (1 - i / _BINS) + high * (i / _BINS) for i in range(1, _BINS)}
    return sorted({low, *(edge for edge in edges if low < edge <= high)})
