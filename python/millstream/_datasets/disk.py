"""Sources that read the samples of a data set from its files, not from memory."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from millstream import _engine
from millstream._core.arguments import whole
from millstream._core.public import public
from millstream._datasets.base import ArrayDataset
from millstream._datasets.cifar import CIFAR10Dataset
from millstream._datasets.mnist import MNISTDataset
from millstream._order.orders import order_of
from millstream._sources.disk import cache_path
from millstream._sources.ordered import OrderedSource

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


@dataclass(frozen=True, eq=False)
class DatasetDiskSource(OrderedSource):
    """The samples of a data set, read from its files on demand.

    Compressed files are unpacked once, into the folder ``unpacked`` of the data set's
    ``cache_dir``. Without a ``cache_dir``, or if that is not writable, they are
    unpacked into MILLSTREAM_CACHE or ``~/.cache/millstream``.

    Args:
      dataset: A data set in the formats of MNIST or CIFAR.
      ordering: "shuffle", "sequential", or an Order.
      prefetch_size: How many samples to read ahead, rounded up to whole batches. A
        loader's own ``prefetch`` overrides it.
    """

    dataset: Any
    ordering: Any = "shuffle"
    prefetch_size: int = 64

    def __post_init__(self) -> None:
        size = whole("prefetch_size", self.prefetch_size, 1)
        object.__setattr__(self, "prefetch_size", size)
        order_of(self.ordering)
        self._open(opened(self.dataset))

    @property
    def prefetch_samples(self) -> int:
        return self.prefetch_size


def opened(dataset: ArrayDataset) -> _engine.Source:
    """The engine's source of a data set's files. Missing files are downloaded."""
    own: str | Path | None = getattr(dataset, "cache_dir", None)
    if own is None:
        return dataset._open(cache_path())
    cache = Path(cache_path(own)) / "unpacked"
    try:
        return dataset._open(cache)
    except OSError as error:
        if error.errno not in _READ_ONLY or str(cache) not in str(error.filename):
            raise
        return dataset._open(cache_path())


class _NamedDiskSource(DatasetDiskSource):
    """The disk source of one data set, with the data set's arguments."""

    _kind: ClassVar[type[MNISTDataset | CIFAR10Dataset]]

    def __init__(
        self,
        split: str = "train",
        cache_dir: str | Path | None = None,
        ordering: Any = "shuffle",
        prefetch_size: int = 64,
    ) -> None:
        super().__init__(self._kind(split, cache_dir), ordering, prefetch_size)


@public
class MNISTDiskSource(_NamedDiskSource):
    """MNIST read from disk: ``MNISTDataset.make_disk_source`` as a class."""

    _kind = MNISTDataset


@public
class CIFAR10DiskSource(_NamedDiskSource):
    """CIFAR-10 read from disk: ``CIFAR10Dataset.make_disk_source`` as a class."""

    _kind = CIFAR10Dataset
