"""Reads the samples of a source through the engine, many at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _engine
from millstream._cli.schema import Field
from millstream._delivery.jit import dtype_named

BATCH_BYTES = 4 << 20
_MOST_ROWS = 1 << 16


def fields_of(source: _engine.Source) -> list[Field]:
    """The fields of a sample."""
    return [Field(name, dtype, tuple(shape)) for name, dtype, shape in source.schema]


def sample_bytes(source: _engine.Source) -> int:
    """The bytes that one sample takes."""
    return sum(
        dtype_named(field.dtype).itemsize * math.prod(field.shape)
        for field in fields_of(source)
    )


class Reader:
    """All samples of a source, or some, in batches of a few megabytes.

    Samples come in their order, and with ``drawn`` only so many of them, spread evenly
    over the source by a fixed shuffle. A batch has ``rows`` samples at most. The engine
    reads ahead.
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
        fitting = BATCH_BYTES // max(sample_bytes(source), 1)
        self.rows = max(1, min(rows, fitting, self.samples))
        whole = self.samples == count
        order = _engine.sequential(count) if whole else _engine.shuffle(count)
        self._plan = _engine.plan(source, order, self.rows, "pad", [], [])
        dtypes = [field.dtype for field in self.fields]
        self._loader = _engine.loader(self._plan, dtypes, 0, -1)

    @property
    def steps(self) -> int:
        """How many batches there are."""
        return -(-self.samples // self.rows)

    def batch(self, step: int) -> list[NDArray[Any]]:
        """An array for each field: the samples from ``step * rows`` on."""
        low, high = step & 0xFFFFFFFF, step >> 32
        words = np.array([self._plan.check_word, 0, 0, 0, low, high, 0, 0], np.uint32)
        *columns, _ = self._loader.take(words)
        valid = min(self.rows, self.samples - step * self.rows)
        return [column[:valid] for column in columns]

    def __iter__(self) -> Iterator[list[NDArray[Any]]]:
        for step in range(self.steps):
            yield self.batch(step)
