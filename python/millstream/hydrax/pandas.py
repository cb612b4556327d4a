"""The rows of a pandas data frame as a group's data; needs ``millstream[pandas]``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

try:
    import pandas
except ImportError as error:
    raise ImportError(
        "millstream.hydrax.pandas needs pandas: pip install 'millstream[pandas]'"
    ) from error

__all__ = ["RowData"]


class RowData(Sequence["pandas.Series[Any]"]):
    """The rows of a data frame by position: a ``Series``, or a RowData for a slice."""

    __slots__ = ("_dataframe",)

    def __init__(self, dataframe: pandas.DataFrame) -> None:
        if not isinstance(dataframe, pandas.DataFrame):
            raise TypeError(
                f"RowData needs a pandas DataFrame; found {type(dataframe).__name__}"
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
            return self._dataframe.iloc[operator.index(key)]
        except TypeError:
            raise TypeError(
                f"invalid key type: {type(key).__name__}. The index of a row must be "
                f"an integer or a slice; found {key!r}"
            ) from None

    def __repr__(self) -> str:
        return f"<RowData of {len(self)} rows>"
