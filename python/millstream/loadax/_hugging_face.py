"""A `Dataset` that reads a Hugging Face data set."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from millstream.loadax._dataset import Dataset


class HuggingFaceDataset(Dataset[dict[str, Any]]):
    """The rows of a ``datasets.Dataset``, as dicts of NumPy arrays and numbers.

    Needs the extra ``millstream[huggingface]``.
    """

    def __init__(self, dataset: Any) -> None:
        datasets = _datasets()
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
        self._dataset = dataset.with_format("numpy")

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
        return cls(_datasets().load_dataset(path, name, split=split, **options))

    @property
    def dataset(self) -> Any:
        """The ``datasets.Dataset``, in the format ``"numpy"``."""
        return self._dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def _item(self, index: int) -> dict[str, Any]:
        row: dict[str, Any] = self._dataset[index]
        return row

    def split_dataset_by_node(self, world_size: int, rank: int) -> HuggingFaceDataset:
        """The shard of node ``rank``, as ``datasets.distributed`` computes it."""
        split = _datasets("datasets.distributed").split_dataset_by_node
        return HuggingFaceDataset(split(self._dataset, rank, world_size))


def _datasets(module: str = "datasets") -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            "HuggingFaceDataset needs the package datasets: "
            "pip install 'millstream[huggingface]'"
        ) from error
