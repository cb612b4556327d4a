"""The interface of Cyreal 0.2.x, implemented by Millstream.

To switch from Cyreal, replace ``cyreal`` by ``millstream.cyreal.v02`` in the imports
and keep your code. The modules have Cyreal's names: ``sources``, ``transforms``,
``loader``, ``rl``, ``datasets`` and ``datasets.time_utils``. This module also exports
the names of all but ``time_utils``. docs/cyreal.md lists the differences.
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
from millstream.cyreal.v02.rl import set_loader_policy_state, set_source_policy_state
from millstream.cyreal.v02.sources import (
    ArraySource,
    DiskSource,
    GymnaxSource,
    GymnaxSourceState,
    Source,
)
from millstream.cyreal.v02.transforms import (
    BatchTransform,
    BufferTransform,
    DevicePutTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    RenameTransform,
    SourceTransform,
    TimeSeriesBatchTransform,
)

__all__ = [
    "ArraySource",
    "BatchTransform",
    "BufferTransform",
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
    "GymnaxSource",
    "GymnaxSourceState",
    "HostCallbackTransform",
    "KMNISTDataset",
    "MNISTDataset",
    "MapTransform",
    "NormalizeImageTransform",
    "RenameTransform",
    "Source",
    "SourceTransform",
    "SunspotsDataset",
    "TimeSeriesBatchTransform",
    "set_loader_policy_state",
    "set_source_policy_state",
]
