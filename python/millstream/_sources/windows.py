"""A source of windows over the samples of another source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.public import public
from millstream._order.orders import SplitRange
from millstream._sources.combine import Combined
from millstream._sources.ordered import OrderedSource, checked_source, resolve_split


@public
@dataclass(frozen=True, eq=False)
class WindowSource(Combined, OrderedSource):
    """Windows over the rows of a source, such as tokens or a time series.

    Sample i is the pytree of ``source`` whose leaves have ``length`` rows each: the
    rows from ``i * stride`` to ``i * stride + length - 1``. N rows have
    ``(N - length) // stride + 1`` windows.

    The windows need no memory, except that the columns of a packed table, such as a
    ``CsvSource``, are copied once. Where the rows of a field lie side by side, as in an
    array or an ``.npy`` file, the engine copies a window in one piece. It gathers other
    windows row by row, such as those that cross the border of two files.

    The windows count the rows as they are stored and ignore the order of ``source``.

    Args:
      source: Any source whose samples are the rows. It may be a slice, or a part of a
        split without a shuffle. Its order must not refer to samples by index, as
        Weighted, Listed and mixtures do.
      length: The number of rows in a window.
      stride: The number of rows from the beginning of a window to that of the next.
      ordering: The order of the windows: "shuffle", "sequential", or an Order.
    """

    source: Any
    length: int
    stride: int = 1
    ordering: Any = "shuffle"

    def __post_init__(self) -> None:
        rows = _rows(checked_source("WindowSource", "source", self.source))
        length = whole("WindowSource: length", self.length, 1)
        stride = whole("WindowSource: stride", self.stride, 1)
        if length > rows.num_samples:
            raise ValueError(
                f"WindowSource: a window of {length} rows does not fit into a source "
                f"of {rows.num_samples} rows. Pass a smaller length."
            )
        self.__dict__.update(length=length, stride=stride, _components=[rows])
        native, tree, _ = rows.native()
        self._open(_engine.windows(native, length, stride), tree)

    def _combine(self, arrays: list[list[Any]]) -> list[Any]:
        starts = self.stride * np.arange(self.num_samples)
        rows = jnp.asarray(starts[:, None] + np.arange(self.length))
        return [jnp.take(array, rows, axis=0) for array in arrays[0]]


def _rows(source: Any) -> Any:
    """Returns the source to read rows from. Raises ``ValueError`` if it has none."""
    order = source.order
    if isinstance(order, SplitRange):
        if order.seed is not None or order.gap[1]:
            raise ValueError(
                "WindowSource: source is a part of a split whose rows are not all "
                "neighbours. Use split(..., shuffle=False), or split the windows."
            )
        order = order.inner
    if order.names_samples:
        raise ValueError(
            f"WindowSource: source has the order {type(order).__name__}, which refers "
            "to its samples by index, but windows ignore the order of their source. "
            "Use a source without this order, and pass the order of the windows as "
            "ordering=."
        )
    if source.host_field_names:
        raise ValueError(
            "WindowSource: source has host fields "
            f"({', '.join(source.host_field_names)}), which windows do not support. "
            "Remove these fields from its samples."
        )
    return resolve_split(source)
