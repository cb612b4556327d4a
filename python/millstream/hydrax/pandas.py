"""Rows of a pandas data frame as the data of a group; needs ``millstream[pandas]``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

try:
    import pandas
except ImportError as error:
    raise ImportError(
        "millstream.hydrax.pandas needs pandas: pip install 'millstream[pandas]'"
    ) from error

if TYPE_CHECKING:
    Row = pandas.Series[Any]
else:
    Row = pandas.Series

__all__ = ["RowData"]


class RowData(Sequence[Row]):
    """The rows of a data frame by position, each a ``Series``; a slice is a RowData."""

    __slots__ = ("_dataframe",)

    def __init__(self, dataframe: pandas.DataFrame) -> None:
        if not isinstance(dataframe, pandas.DataFrame):
            raise TypeError(
                f"RowData needs a pandas DataFrame, not {type(dataframe).__name__}"
            )
        self._dataframe = dataframe

    @property
    def dataframe(self) -> pandas.DataFrame:
        """The data frame."""
        return self._dataframe

    def __len__(self) -> int:
        return len(self._dataframe.index)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return RowData(self._dataframe.iloc[key])
        try:
            position = operator.index(key)
        except TypeError:
            raise TypeError(
                f"a row is named by a whole number or a slice, not {key!r}"
            ) from None
        return self._dataframe.iloc[position]

    def __repr__(self) -> str:
        return f"<RowData of {len(self)} rows>"
