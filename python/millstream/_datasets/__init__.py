"""Data sets that find, fetch and read their own files."""

from millstream._datasets.celeba import CelebADataset
from millstream._datasets.cifar import CIFAR10Dataset, CIFAR100Dataset
from millstream._datasets.emnist import EMNISTDataset
from millstream._datasets.mnist import (
    FashionMNISTDataset,
    KMNISTDataset,
    MNISTDataset,
)
from millstream._datasets.series import DailyMinTemperaturesDataset, SunspotsDataset
from millstream._datasets.windows import (
    prepare_seq_to_seq_windows,
    prepare_time_series_windows,
    select_split,
    sliding_window_many,
)

__all__ = [
    "CIFAR10Dataset",
    "CIFAR100Dataset",
    "CelebADataset",
    "DailyMinTemperaturesDataset",
    "EMNISTDataset",
    "FashionMNISTDataset",
    "KMNISTDataset",
    "MNISTDataset",
    "SunspotsDataset",
    "prepare_seq_to_seq_windows",
    "prepare_time_series_windows",
    "select_split",
    "sliding_window_many",
]
