"""Cyreal's vocabulary over Millstream: change the import and keep the code."""

from millstream import (
    ArraySampleSource,
    BatchTransform,
    CIFAR10Dataset,
    DataLoader,
    DevicePutTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    MNISTDataset,
    NormalizeImageTransform,
    RenameTransform,
    Source,
)

ArraySource = ArraySampleSource

__all__ = [
    "ArraySampleSource",
    "ArraySource",
    "BatchTransform",
    "CIFAR10Dataset",
    "DataLoader",
    "DevicePutTransform",
    "FlattenTransform",
    "HostCallbackTransform",
    "MNISTDataset",
    "MapTransform",
    "NormalizeImageTransform",
    "RenameTransform",
    "Source",
]
