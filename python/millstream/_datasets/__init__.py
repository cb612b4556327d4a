"""Data sets that find, fetch and read their own files, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream._datasets.celeba import CelebADataset
    from millstream._datasets.cifar import CIFAR10Dataset, CIFAR100Dataset
    from millstream._datasets.disk import CIFAR10DiskSource, MNISTDiskSource
    from millstream._datasets.emnist import EMNISTDataset
    from millstream._datasets.mnist import (
        FashionMNISTDataset,
        KMNISTDataset,
        MNISTDataset,
    )
    from millstream._datasets.series import DailyMinTemperaturesDataset, SunspotsDataset
    from millstream._datasets.windows import (
        make_sequence_disk_source,
        prepare_seq_to_seq_windows,
        prepare_time_series_windows,
        select_split,
        sliding_window_many,
    )

__all__ = [
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "CIFAR100Dataset",
    "CelebADataset",
    "DailyMinTemperaturesDataset",
    "EMNISTDataset",
    "FashionMNISTDataset",
    "KMNISTDataset",
    "MNISTDataset",
    "MNISTDiskSource",
    "SunspotsDataset",
    "make_sequence_disk_source",
    "prepare_seq_to_seq_windows",
    "prepare_time_series_windows",
    "select_split",
    "sliding_window_many",
]

_HOMES = {
    "CIFAR10Dataset": "cifar",
    "CIFAR10DiskSource": "disk",
    "CIFAR100Dataset": "cifar",
    "CelebADataset": "celeba",
    "DailyMinTemperaturesDataset": "series",
    "EMNISTDataset": "emnist",
    "FashionMNISTDataset": "mnist",
    "KMNISTDataset": "mnist",
    "MNISTDataset": "mnist",
    "MNISTDiskSource": "disk",
    "SunspotsDataset": "series",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = import_module(f"{__name__}.{_HOMES.get(name, 'windows')}")
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
