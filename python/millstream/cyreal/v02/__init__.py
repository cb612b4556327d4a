"""The interface of Cyreal 0.2.x, implemented by Millstream.

To switch from Cyreal, replace ``cyreal`` by ``millstream.cyreal.v02`` in the imports
and keep your code. The modules have Cyreal's names: ``sources``, ``transforms``,
``loader``, ``datasets`` and ``datasets.time_utils``. This module also exports the names
of sources, transforms, data sets and the loader. docs/cyreal.md lists the differences.
"""

from millstream.cyreal.v02.datasets import (
    CelebADataset,
    CIFAR10Dataset,
    CIFAR100Dataset,
    DailyMinTemperaturesDataset,
    DatasetProtocol,
    EMNISTDataset,
    FashionMNISTDataset,
    KMNISTDataset,
    MNISTDataset,
    SunspotsDataset,
)
from millstream.cyreal.v02.loader import DataLoader
from millstream.cyreal.v02.sources import ArraySource, DiskSource, Source
from millstream.cyreal.v02.transforms import (
    BatchTransform,
    DevicePutTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    RenameTransform,
    SourceTransform,
)

__all__ = [
    "ArraySource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR100Dataset",
    "CelebADataset",
    "DailyMinTemperaturesDataset",
    "DataLoader",
    "DatasetProtocol",
    "DevicePutTransform",
    "DiskSource",
    "EMNISTDataset",
    "FashionMNISTDataset",
    "FlattenTransform",
    "HostCallbackTransform",
    "KMNISTDataset",
    "MNISTDataset",
    "MapTransform",
    "NormalizeImageTransform",
    "RenameTransform",
    "Source",
    "SourceTransform",
    "SunspotsDataset",
]
