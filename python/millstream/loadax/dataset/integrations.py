"""Data sets of other libraries: Hugging Face, Polars and SQLite."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from millstream._core.optional import optional
from millstream._sources.sqlite import SQLiteRows
from millstream.loadax.dataset.protocol import InMemoryDataset

_USER = ("HuggingFaceDataset", "huggingface")


class HuggingFaceDataset(InMemoryDataset[dict[str, Any]]):
    """The rows of a ``datasets.Dataset``, as dicts of NumPy arrays and numbers.

    Needs the extra ``millstream[huggingface]``.
    """

    def __init__(self, dataset: Any) -> None:
        datasets = optional("datasets", *_USER)
        if isinstance(dataset, dict):
            raise TypeError(
                "expected one split, found a dict of splits. Pass one of "
                f"{', '.join(map(repr, dataset))}"
            )
        if not isinstance(dataset, datasets.Dataset):
            raise TypeError(
                "HuggingFaceDataset needs a datasets.Dataset, which has items by "
                f"index, not {type(dataset).__name__}"
            )
        super().__init__(dataset.with_format("numpy"))

    @classmethod
    def from_hub(
        cls,
        path: str,
        name: str | None = None,
        split: str | None = None,
        *,
        trust_remote_code: bool = False,
    ) -> HuggingFaceDataset:
        """Loads a data set with ``datasets.load_dataset``."""
        options = {"trust_remote_code": True} if trust_remote_code else {}
        load = optional("datasets", *_USER).load_dataset
        return cls(load(path, name, split=split, **options))

    @property
    def dataset(self) -> Any:
        """The ``datasets.Dataset``, in the format ``"numpy"``."""
        return self.items

    def split_dataset_by_node(self, world_size: int, rank: int) -> HuggingFaceDataset:
        """The shard of node ``rank``, as ``datasets.distributed`` computes it."""
        split = optional("datasets.distributed", *_USER).split_dataset_by_node
        return HuggingFaceDataset(split(self.items, rank, world_size))


class PolarsDataset(InMemoryDataset[dict[str, Any]]):
    """The rows of a ``polars.DataFrame``, as dicts of Python values.

    Lists become NumPy arrays.
    """

    def __init__(self, frame: Any) -> None:
        if not all(hasattr(frame, name) for name in ("rows", "height", "columns")):
            raise TypeError(
                "PolarsDataset needs a polars.DataFrame, which has items by index, not "
                f"{type(frame).__name__}. Pass frame.collect() of a LazyFrame."
            )
        super().__init__(frame)

    def _item(self, index: int) -> dict[str, Any]:
        return PolarsDataset._items(self, [index])[0]

    def _items(self, indices: list[int]) -> list[dict[str, Any]]:
        rows = self.items[indices].rows(named=True)
        return [
            {k: np.asarray(v) if isinstance(v, list) else v for k, v in row.items()}
            for row in rows
        ]

    def _reader(self) -> None:
        return None


class SQLiteDataset(InMemoryDataset[dict[str, Any]]):
    """The rows of a table, as dicts of Python values, in the order of their row ids.

    The list of row ids is read once. Workers have read-only connections of their own
    and read all rows of a request with one query. ``timeout`` is how many seconds to
    wait for a lock of another process.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        table: str,
        columns: list[str] | None = None,
        timeout: float = 5.0,
    ) -> None:
        super().__init__(SQLiteRows(path, table, columns, timeout))
