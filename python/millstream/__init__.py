"""Millstream: a data loader for JAX whose engine is C++."""

from typing import TYPE_CHECKING

from millstream._lazy import lazy

if TYPE_CHECKING:
    from millstream._combine import (
        Subset,
        concatenate,
        zip_sources,
    )
    from millstream._datasets.celeba import (
        CelebADataset,
    )
    from millstream._datasets.cifar import (
        CIFAR10Dataset,
        CIFAR100Dataset,
    )
    from millstream._datasets.disk import (
        CIFAR10DiskSource,
        MNISTDiskSource,
    )
    from millstream._datasets.emnist import (
        EMNISTDataset,
    )
    from millstream._datasets.mnist import (
        FashionMNISTDataset,
        KMNISTDataset,
        MNISTDataset,
    )
    from millstream._datasets.series import (
        DailyMinTemperaturesDataset,
        SunspotsDataset,
    )
    from millstream._datasets.windows import (
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
    from millstream._errors import (
        DataError,
        WorkerError,
        WorkerTimeout,
    )
    from millstream._functions import (
        DatasetSource,
        DiskSampleSource,
        PythonMapTransform,
        fill_source,
    )
    from millstream._loader import (
        DataLoader,
    )
    from millstream._materialize import (
        dataset_to_jax,
    )
    from millstream._mixture import (
        mix,
    )
    from millstream._orders import (
        Listed,
        Order,
        Sequential,
        Shuffle,
        Weighted,
        WithReplacement,
    )
    from millstream._pipeline import (
        Source,
    )
    from millstream._source import (
        ArraySampleSource,
    )
    from millstream._state import (
        LoaderState,
    )
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
    from millstream._write import (
        write_csv,
        write_idx,
        write_npy,
        write_packed,
    )

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
    "DatasetSource",
    "DevicePutTransform",
    "DiskSampleSource",
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
    "PythonMapTransform",
    "RenameTransform",
    "Sequential",
    "Shuffle",
    "Source",
    "Subset",
    "SunspotsDataset",
    "Weighted",
    "WithReplacement",
    "WorkerError",
    "WorkerTimeout",
    "concatenate",
    "dataset_to_jax",
    "fill_source",
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
    "_combine": (
        "Subset",
        "concatenate",
        "zip_sources",
    ),
    "_datasets.celeba": ("CelebADataset",),
    "_datasets.cifar": (
        "CIFAR100Dataset",
        "CIFAR10Dataset",
    ),
    "_datasets.disk": (
        "CIFAR10DiskSource",
        "MNISTDiskSource",
    ),
    "_datasets.emnist": ("EMNISTDataset",),
    "_datasets.mnist": (
        "FashionMNISTDataset",
        "KMNISTDataset",
        "MNISTDataset",
    ),
    "_datasets.series": (
        "DailyMinTemperaturesDataset",
        "SunspotsDataset",
    ),
    "_datasets.windows": (
        "make_sequence_disk_source",
        "prepare_seq_to_seq_windows",
        "prepare_time_series_windows",
        "select_split",
        "sliding_window_many",
    ),
    "_disk": (
        "CifarSource",
        "CsvSource",
        "IdxSource",
        "NpySource",
        "NpzSource",
        "PackedSource",
    ),
    "_errors": (
        "DataError",
        "WorkerError",
        "WorkerTimeout",
    ),
    "_functions": (
        "DatasetSource",
        "DiskSampleSource",
        "PythonMapTransform",
        "fill_source",
    ),
    "_loader": ("DataLoader",),
    "_materialize": ("dataset_to_jax",),
    "_mixture": ("mix",),
    "_orders": (
        "Listed",
        "Order",
        "Sequential",
        "Shuffle",
        "Weighted",
        "WithReplacement",
    ),
    "_pipeline": ("Source",),
    "_source": ("ArraySampleSource",),
    "_state": ("LoaderState",),
    "_transforms": (
        "BatchTransform",
        "CastTransform",
        "DevicePutTransform",
        "FlattenImageTransform",
        "FlattenTransform",
        "HostCallbackTransform",
        "MapTransform",
        "NormalizeImageTransform",
        "RenameTransform",
    ),
    "_write": (
        "write_csv",
        "write_idx",
        "write_npy",
        "write_packed",
    ),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _HOMES)
