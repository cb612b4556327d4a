"""The data sets of Cyreal 0.2.x, and where their files are."""

from __future__ import annotations

from millstream import (
    CelebADataset,
    CIFAR10Dataset,
    CIFAR100Dataset,
    DailyMinTemperaturesDataset,
    EMNISTDataset,
    FashionMNISTDataset,
    KMNISTDataset,
    MNISTDataset,
    SunspotsDataset,
)
from millstream._datasets.emnist import SUBSETS
from millstream._datasets.idx import STANDARD_NAMES, IdxDataset
from millstream.cyreal._protocols import DatasetProtocol

__all__ = [
    "EMNIST_URLS",
    "FASHION_MNIST_URLS",
    "KMNIST_URLS",
    "MNIST_URLS",
    "CIFAR10Dataset",
    "CIFAR100Dataset",
    "CelebADataset",
    "DailyMinTemperaturesDataset",
    "DatasetProtocol",
    "EMNISTDataset",
    "FashionMNISTDataset",
    "KMNISTDataset",
    "MNISTDataset",
    "SunspotsDataset",
]


def _urls(dataset: type[IdxDataset]) -> dict[str, str]:
    """Returns the address of each file of a data set, such as "train_images"."""
    return {role: file.urls[0] for role, file in dataset._remote.items()}


def _members(subset: str) -> dict[str, str]:
    """Returns the path of each file of a subset in the archive of EMNIST."""
    members = {}
    for role in STANDARD_NAMES:
        split, content = role.split("_")
        members[role] = f"gzip/{EMNISTDataset(subset, split)._member(content)}"
    return members


MNIST_URLS = _urls(MNISTDataset)
FASHION_MNIST_URLS = _urls(FashionMNISTDataset)
KMNIST_URLS = _urls(KMNISTDataset)
EMNIST_URLS = {subset: _members(subset) for subset in SUBSETS}
