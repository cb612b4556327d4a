"""Rows of Hugging Face data sets.

Worker processes import this module, so it must not import jax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream._core.errors import DataError

Converter = Callable[[list[Any]], list[Any]]
"""Converts the values of a column in several rows."""


class HuggingFaceRows:
    """The rows of a data set, read several at a time.

    ``converters`` has a function for each column. If it is empty, values stay as they
    are.
    """

    def __init__(self, dataset: Any, converters: dict[str, Converter]) -> None:
        self._dataset = dataset
        self._converters = converters

    def __repr__(self) -> str:
        return repr(self._dataset)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        # Some formats give a single row other dtypes than a batch.
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        first, count = indices[0], len(indices)
        if indices == list(range(first, first + count)):
            batch = self._dataset[first : first + count]  # a slice gathers no rows
        else:
            batch = self._dataset[indices]
        columns = list(batch.values())
        if self._converters:
            columns = [self._converters[name](batch[name]) for name in batch]
        return [
            dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)
        ]


@dataclass(frozen=True)
class Arrays:
    """Makes arrays of numbers, or of lists of numbers."""

    name: str
    dtype: np.dtype
    is_scalar: bool

    def __call__(self, values: list[Any]) -> list[np.ndarray]:
        try:
            if self.is_scalar:
                array = np.asarray(values, self.dtype)
                return [array[k, ...] for k in range(len(array))]
            return [np.asarray(value, self.dtype) for value in values]
        except OverflowError as error:
            raise DataError(
                f"'{self.name}' holds a value that {self.dtype} cannot hold; set "
                "jax_enable_x64 to use 64-bit types in JAX",
                kind="data",
                field=self.name,
            ) from error


@dataclass(frozen=True)
class Fields:
    """Converts the fields of dicts."""

    converters: dict[str, Converter]

    def __call__(self, values: list[Any]) -> list[Any]:
        columns = [
            convert([value[key] for value in values])
            for key, convert in self.converters.items()
        ]
        return [
            dict(zip(self.converters, row, strict=True))
            for row in zip(*columns, strict=True)
        ]


def image_arrays(values: list[Any]) -> list[np.ndarray]:
    """Makes arrays of images."""
    return [np.asarray(value) for value in values]
