"""Reads the samples of a source in batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _engine
from millstream._delivery.jit import dtype_named
from millstream._formats.schema import Field

BATCH_BYTES = 4 << 20
_MOST_ROWS = 1 << 16


def fields_of(source: _engine.Source) -> list[Field]:
    """Returns the fields of a source."""
    return [Field(name, dtype, tuple(shape)) for name, dtype, shape in source.schema]


def sample_bytes(source: _engine.Source) -> int:
    """Returns the size of a sample in bytes."""
    return sum(
        dtype_named(field.dtype).itemsize * math.prod(field.shape)
        for field in fields_of(source)
    )


class Reader:
    """Reads a source in batches of up to 4 MiB and ``rows`` samples.

    It reads all samples in order. With a smaller ``drawn`` it reads that many samples,
    which a fixed shuffle spreads evenly over the source.
    """

    def __init__(
        self,
        source: _engine.Source,
        *,
        drawn: int | None = None,
        rows: int = _MOST_ROWS,
    ) -> None:
        count = len(source)
        self.fields = fields_of(source)
        self.samples = count if drawn is None else min(drawn, count)
        rows_that_fit = BATCH_BYTES // max(sample_bytes(source), 1)
        self.rows = max(1, min(rows, rows_that_fit, self.samples))
        whole = self.samples == count
        order = _engine.sequential(count) if whole else _engine.shuffle(count)
        self._plan = _engine.plan(source, order, self.rows, "pad", [], [])
        dtypes = [field.dtype for field in self.fields]
        self._loader = _engine.loader(self._plan, dtypes, 0, -1)

    @property
    def steps(self) -> int:
        """The number of batches."""
        return -(-self.samples // self.rows)

    def batch(self, step: int) -> list[NDArray[Any]]:
        """Returns an array for each field, which starts at sample ``step * rows``."""
        low, high = step & 0xFFFFFFFF, step >> 32
        words = np.array([self._plan.check_word, 0, 0, 0, low, high, 0, 0], np.uint32)
        *columns, _ = self._loader.take(words)
        valid = min(self.rows, self.samples - step * self.rows)
        return [column[:valid] for column in columns]

    def __iter__(self) -> Iterator[list[NDArray[Any]]]:
        for step in range(self.steps):
            yield self.batch(step)
