"""The interface of the Cyreal library, implemented by Millstream.

To switch from Cyreal, change the import and keep your code. These are the names and
defaults of its first releases. ``millstream.cyreal.v02`` has those of 0.2.x.
docs/cyreal.md lists the differences.
"""

from millstream import (
    ArraySampleSource,
    CIFAR10Dataset,
    CIFAR10DiskSource,
    DevicePutTransform,
    DiskSampleSource,
    FlattenTransform,
    GymnaxSource,
    HostCallbackTransform,
    LoaderState,
    MapTransform,
    MNISTDataset,
    MNISTDiskSource,
    NormalizeImageTransform,
    RenameTransform,
    make_sequence_disk_source,
)
from millstream.cyreal._batch import BatchTransform
from millstream.cyreal._loader import DataLoader
from millstream.cyreal._protocols import DatasetProtocol, Source

ArraySource = ArraySampleSource

__all__ = [
    "ArraySampleSource",
    "ArraySource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "DataLoader",
    "DatasetProtocol",
    "DevicePutTransform",
    "DiskSampleSource",
    "FlattenTransform",
    "GymnaxSource",
    "HostCallbackTransform",
    "LoaderState",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "RenameTransform",
    "Source",
    "make_sequence_disk_source",
]
