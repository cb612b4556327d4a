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
    from millstream._combine import Subset, concatenate, zip_sources
    from millstream._datasets import (
        CelebADataset,
        CIFAR10Dataset,
        CIFAR10DiskSource,
        CIFAR100Dataset,
        DailyMinTemperaturesDataset,
        EMNISTDataset,
        FashionMNISTDataset,
        KMNISTDataset,
        MNISTDataset,
        MNISTDiskSource,
        SunspotsDataset,
        make_sequence_disk_source,
        prepare_seq_to_seq_windows,
        prepare_time_series_windows,
        select_split,
        sliding_window_many,
    )
    from millstream._disk import (
        CifarSource,
        CsvSource,
        IdxSource,
        NpySource,
        NpzSource,
        PackedSource,
    )
    from millstream._write import write_csv, write_idx, write_npy, write_packed

__version__ = "0.1.0"

__all__ = [
    "ArraySampleSource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "CIFAR100Dataset",
    "CastTransform",
    "CelebADataset",
    "CifarSource",
    "CsvSource",
    "DailyMinTemperaturesDataset",
    "DataError",
    "DataLoader",
    "DevicePutTransform",
    "EMNISTDataset",
    "FashionMNISTDataset",
    "FlattenImageTransform",
    "FlattenTransform",
    "HostCallbackTransform",
    "IdxSource",
    "KMNISTDataset",
    "Listed",
    "LoaderState",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "NpySource",
    "NpzSource",
    "Order",
    "PackedSource",
    "RenameTransform",
    "Sequential",
    "Shuffle",
    "Source",
    "Subset",
    "SunspotsDataset",
    "Weighted",
    "WithReplacement",
    "concatenate",
    "dataset_to_jax",
    "make_sequence_disk_source",
    "mix",
    "prepare_seq_to_seq_windows",
    "prepare_time_series_windows",
    "select_split",
    "sliding_window_many",
    "write_csv",
    "write_idx",
    "write_npy",
    "write_packed",
    "zip_sources",
]


_HOMES = {
    "CifarSource": "_disk",
    "CsvSource": "_disk",
    "IdxSource": "_disk",
    "NpySource": "_disk",
    "NpzSource": "_disk",
    "PackedSource": "_disk",
    "Subset": "_combine",
    "concatenate": "_combine",
    "write_csv": "_write",
    "write_idx": "_write",
    "write_npy": "_write",
    "write_packed": "_write",
    "zip_sources": "_combine",
}


if not TYPE_CHECKING:  # a checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        """Data sets and files are imported when first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = import_module(f"{__name__}.{_HOMES.get(name, '_datasets')}")
        value = globals()[name] = getattr(home, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
