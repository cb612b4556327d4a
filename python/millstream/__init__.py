"""Millstream: a data loader for JAX with an engine written in C++."""

from typing import TYPE_CHECKING

from millstream._core.lazy import lazy

if TYPE_CHECKING:
    from millstream._core.errors import DataError as DataError
    from millstream._core.errors import WorkerError as WorkerError
    from millstream._core.errors import WorkerTimeout as WorkerTimeout
    from millstream._core.interrupts import StopOnInterrupt as StopOnInterrupt
    from millstream._core.references import HeldBatches as HeldBatches
    from millstream._datasets.celeba import CelebADataset as CelebADataset
    from millstream._datasets.cifar import CIFAR10Dataset as CIFAR10Dataset
    from millstream._datasets.cifar import CIFAR100Dataset as CIFAR100Dataset
    from millstream._datasets.disk import CIFAR10DiskSource as CIFAR10DiskSource
    from millstream._datasets.disk import MNISTDiskSource as MNISTDiskSource
    from millstream._datasets.emnist import EMNISTDataset as EMNISTDataset
    from millstream._datasets.mnist import FashionMNISTDataset as FashionMNISTDataset
    from millstream._datasets.mnist import KMNISTDataset as KMNISTDataset
    from millstream._datasets.mnist import MNISTDataset as MNISTDataset
    from millstream._datasets.series import (
        DailyMinTemperaturesDataset as DailyMinTemperaturesDataset,
    )
    from millstream._datasets.series import SunspotsDataset as SunspotsDataset
    from millstream._datasets.windows import (
        make_sequence_disk_source as make_sequence_disk_source,
    )
    from millstream._datasets.windows import (
        prepare_seq_to_seq_windows as prepare_seq_to_seq_windows,
    )
    from millstream._datasets.windows import (
        prepare_time_series_windows as prepare_time_series_windows,
    )
    from millstream._datasets.windows import select_split as select_split
    from millstream._datasets.windows import sliding_window_many as sliding_window_many
    from millstream._order.orders import Listed as Listed
    from millstream._order.orders import Order as Order
    from millstream._order.orders import Sequential as Sequential
    from millstream._order.orders import Shuffle as Shuffle
    from millstream._order.orders import Weighted as Weighted
    from millstream._order.orders import WithReplacement as WithReplacement
    from millstream._run.batch_cache import BatchCache as BatchCache
    from millstream._run.cache_files import CachedBatch as CachedBatch
    from millstream._run.loader import DataLoader as DataLoader
    from millstream._run.state import LoaderState as LoaderState
    from millstream._sources.arrays import ArraySampleSource as ArraySampleSource
    from millstream._sources.as_source import as_source as as_source
    from millstream._sources.combine import Subset as Subset
    from millstream._sources.combine import concatenate as concatenate
    from millstream._sources.combine import zip_sources as zip_sources
    from millstream._sources.csv import CsvSource as CsvSource
    from millstream._sources.disk import CifarSource as CifarSource
    from millstream._sources.disk import IdxSource as IdxSource
    from millstream._sources.disk import NpySource as NpySource
    from millstream._sources.disk import NpzSource as NpzSource
    from millstream._sources.disk import PackedSource as PackedSource
    from millstream._sources.fill import fill_source as fill_source
    from millstream._sources.functions import DatasetSource as DatasetSource
    from millstream._sources.functions import DiskSampleSource as DiskSampleSource
    from millstream._sources.gymnax import GymnaxSource as GymnaxSource
    from millstream._sources.iterable import IterableSource as IterableSource
    from millstream._sources.materialize import dataset_to_jax as dataset_to_jax
    from millstream._sources.mixture import mix as mix
    from millstream._sources.policies import (
        set_loader_policy_state as set_loader_policy_state,
    )
    from millstream._sources.policies import (
        set_source_policy_state as set_source_policy_state,
    )
    from millstream._sources.source import Source as Source
    from millstream._sources.streams import Stream as Stream
    from millstream._sources.traced import TracedSource as TracedSource
    from millstream._sources.windows import WindowSource as WindowSource
    from millstream._sources.write import write_csv as write_csv
    from millstream._sources.write import write_idx as write_idx
    from millstream._sources.write import write_npy as write_npy
    from millstream._sources.write import write_packed as write_packed
    from millstream._stages.augment import RandomCropTransform as RandomCropTransform
    from millstream._stages.augment import RandomFlipTransform as RandomFlipTransform
    from millstream._stages.batch import BatchTransform as BatchTransform
    from millstream._stages.buffer import BufferTransform as BufferTransform
    from millstream._stages.device_put import DevicePutTransform as DevicePutTransform
    from millstream._stages.filter import FilterTransform as FilterTransform
    from millstream._stages.map import HostCallbackTransform as HostCallbackTransform
    from millstream._stages.map import MapTransform as MapTransform
    from millstream._stages.normalize import CastTransform as CastTransform
    from millstream._stages.normalize import (
        NormalizeImageTransform as NormalizeImageTransform,
    )
    from millstream._stages.python_map import PythonMapTransform as PythonMapTransform
    from millstream._stages.reshape import (
        FlattenImageTransform as FlattenImageTransform,
    )
    from millstream._stages.reshape import FlattenTransform as FlattenTransform
    from millstream._stages.reshape import RenameTransform as RenameTransform
    from millstream._stages.time_series import (
        TimeSeriesBatchTransform as TimeSeriesBatchTransform,
    )

__version__ = "0.1.0"

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy()
