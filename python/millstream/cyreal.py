"""The interface of the Cyreal library, implemented by Millstream.

To switch from Cyreal, change the import and keep your code.
"""

import millstream
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CIFAR10Dataset,
    CIFAR10DiskSource,
    DevicePutTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    MNISTDataset,
    MNISTDiskSource,
    NormalizeImageTransform,
    RenameTransform,
    Source,
    make_sequence_disk_source,
)

ArraySource = ArraySampleSource


class DataLoader(millstream.DataLoader):
    """``millstream.DataLoader``, except that ``iterate`` may repeat an epoch."""

    _warns_of_repeats = False


__all__ = [
    "ArraySampleSource",
    "ArraySource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "DataLoader",
    "DevicePutTransform",
    "FlattenTransform",
    "HostCallbackTransform",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "RenameTransform",
    "Source",
    "make_sequence_disk_source",
]
