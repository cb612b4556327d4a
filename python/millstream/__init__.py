"""Millstream: a data loader for JAX whose engine is C++."""

from typing import TYPE_CHECKING, Any

from millstream._errors import DataError
from millstream._loader import DataLoader
from millstream._materialize import dataset_to_jax
from millstream._mixture import mix
from millstream._orders import (
    Listed,
    Order,
    Sequential,
    Shuffle,
    Weighted,
    WithReplacement,
)
from millstream._pipeline import Source
from millstream._source import ArraySampleSource
from millstream._state import LoaderState
from millstream._transforms import (
    BatchTransform,
    CastTransform,
    DevicePutTransform,
    FlattenImageTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    RenameTransform,
)

if TYPE_CHECKING:
    from millstream._datasets import (
        CelebADataset,
        CIFAR10Dataset,
        CIFAR100Dataset,
        DailyMinTemperaturesDataset,
        EMNISTDataset,
        FashionMNISTDataset,
        KMNISTDataset,
        MNISTDataset,
        SunspotsDataset,
        prepare_seq_to_seq_windows,
        prepare_time_series_windows,
        select_split,
        sliding_window_many,
    )

__version__ = "0.1.0"

__all__ = [
    "ArraySampleSource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR100Dataset",
    "CastTransform",
    "CelebADataset",
    "DailyMinTemperaturesDataset",
    "DataError",
    "DataLoader",
    "DevicePutTransform",
    "EMNISTDataset",
    "FashionMNISTDataset",
    "FlattenImageTransform",
    "FlattenTransform",
    "HostCallbackTransform",
    "KMNISTDataset",
    "Listed",
    "LoaderState",
    "MNISTDataset",
    "MapTransform",
    "NormalizeImageTransform",
    "Order",
    "RenameTransform",
    "Sequential",
    "Shuffle",
    "Source",
    "SunspotsDataset",
    "Weighted",
    "WithReplacement",
    "dataset_to_jax",
    "mix",
    "prepare_seq_to_seq_windows",
    "prepare_time_series_windows",
    "select_split",
    "sliding_window_many",
]


def __getattr__(name: str) -> Any:
    """Data sets, and what they need, are imported when first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream import _datasets

    value = globals()[name] = getattr(_datasets, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
