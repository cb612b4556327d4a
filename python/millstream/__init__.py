"""Millstream: a data loader for JAX whose engine is C++."""

from millstream._errors import DataError
from millstream._loader import DataLoader
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

__version__ = "0.1.0"

__all__ = [
    "ArraySampleSource",
    "BatchTransform",
    "CastTransform",
    "DataError",
    "DataLoader",
    "DevicePutTransform",
    "FlattenImageTransform",
    "FlattenTransform",
    "HostCallbackTransform",
    "Listed",
    "LoaderState",
    "MapTransform",
    "NormalizeImageTransform",
    "Order",
    "RenameTransform",
    "Sequential",
    "Shuffle",
    "Source",
    "Weighted",
    "WithReplacement",
]
