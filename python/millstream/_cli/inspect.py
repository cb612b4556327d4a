"""``millstream inspect``: shows the contents of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _engine
from millstream._cli.histogram import Histogram, Range, histograms
from millstream._cli.reading import Reader, sample_bytes
from millstream._core.progress_bar import amount_text
from millstream._formats.detect import DataSet
from millstream._formats.schema import type_text

_DRAWN_BYTES = 64 << 20
_SHOWN_VALUES = 8


def describe(
    data: DataSet, source: _engine.Source, *, samples: int, everything: bool
) -> Iterator[str]:
    """Yields lines that describe a data set: its fields, some samples and histograms.

    Histograms use at most 64 MiB of samples, spread evenly over the data set, or all
    samples with ``everything``.
    """
    each = sample_bytes(source)
    count = len(source)
    drawn = count if everything else min(count, max(_DRAWN_BYTES // max(each, 1), 1))
    reader = Reader(source, drawn=drawn)
    yield data.name
    yield f"  format   {data.title}"
    yield f"  samples  {count:,} of {amount_text(each)}, {amount_text(count * each)}"
    width = max(len(field.name) for field in reader.fields)
    for i, field in enumerate(reader.fields):
        lead = "  fields   " if i == 0 else "           "
        yield f"{lead}{field.name:<{width}}  {type_text(field)}"
    if samples > 0:
        yield from _samples(source, samples, width)
    for field, values, histogram in histograms(reader, reader.fields):
        yield ""
        yield f"  {field.name}: {_summary(values)}"
        if drawn < count:
            yield f"    of {drawn:,} samples, spread evenly"
        yield from _bars(histogram)
    yield ""


def _samples(source: _engine.Source, samples: int, width: int) -> Iterator[str]:
    reader = Reader(source, rows=samples)
    for k in range(min(samples, reader.samples)):
        step, row = divmod(k, reader.rows)
        if row == 0:
            columns = reader.batch(step)
        for i, (field, column) in enumerate(zip(reader.fields, columns, strict=True)):
            lead = f"  sample {k}" if i == 0 else ""
            yield f"{lead:<11}{field.name:<{width}}  {_values_text(column[row])}"


def _values_text(value: NDArray[Any]) -> str:
    flat = np.asarray(value).reshape(-1)
    shown = " ".join(_number_text(number) for number in flat[:_SHOWN_VALUES])
    more = f" ... ({flat.size:,} values)" if flat.size > _SHOWN_VALUES else ""
    return shown + more


def _number_text(number: Any) -> str:
    if isinstance(number, int | np.integer | np.bool_):
        return str(number)
    if isinstance(number, np.complexfloating):
        return f"{complex(number):.6g}"
    return f"{float(number):.6g}"


def _summary(values: Range) -> str:
    others = f", {values.not_finite:,} not finite" if values.not_finite else ""
    if values.count == 0:
        return f"no values{others}"
    low, high = (_number_text(number) for number in (values.low, values.high))
    return f"{low} to {high}, mean {values.mean:.6g}{others}"


def _bars(histogram: Histogram | None) -> list[str]:
    return [f"    {line}" for line in histogram.lines()] if histogram else []
