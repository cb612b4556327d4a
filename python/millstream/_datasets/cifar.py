"""CIFAR-10 and CIFAR-100: small colour photographs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from millstream import _engine
from millstream._core.errors import DataError, data_error
from millstream._core.public import public
from millstream._datasets.archive import extract_folder, extract_member
from millstream._datasets.base import (
    ArrayDataset,
    Arrays,
    T,
    cache_folder,
    check_choice,
    fetched,
    read_or_replace,
)
from millstream._datasets.download import RemoteFile
from millstream._sources.ordered import recast

_HOME = "https://www.cs.toronto.edu/~kriz/"
_PADDLE = "https://dataset.bj.bcebos.com/cifar/"
_MXNET = (
    "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/cifar100/"
)


@dataclass(frozen=True)
class _CifarDataset(ArrayDataset):
    """Images from the files of the binary archive or of the Python archive."""

    split: str = "train"
    cache_dir: str | Path | None = None

    _cache_name: ClassVar[str]
    _folders: ClassVar[dict[str, RemoteFile]]
    _batches: ClassVar[dict[str, tuple[str, ...]]]
    _classes: ClassVar[int]

    def __post_init__(self) -> None:
        check_choice("split", self.split, ("train", "test"))

    def files(self) -> tuple[Path, ...]:
        """Return the files of this split in order: binary or pickled.

        Binary files end in ``.bin``; pickled files have no extension.
        """
        root = self._root()
        binary, pickled = self._folders
        for name, folder in (
            (binary, root / binary),
            (pickled, root / pickled),
            (binary, root),
        ):
            files = self._files_in(name, folder)
            if all(path.exists() for path in files):
                return files
        files = self._files_in(pickled, root)
        if all(path.is_file() for path in files):  # "train" may also be a folder
            return files
        packed = (
            key for key, file in self._folders.items() if (root / file.name).exists()
        )
        name = next(packed, binary)
        archive = self._archive(name)
        files = self._files_in(name, extract_folder(archive, name, root))
        for path in files:
            if not path.exists():
                if self.cache_dir is not None:
                    raise data_error(
                        f"delete the folder to have {archive.name} unpacked again",
                        path=path.parent,
                        expected=path.name,
                        found="none",
                    )
                extract_member(archive, path.name, path)
        return files

    def _root(self) -> Path:
        return cache_folder(self.cache_dir, self._cache_name)

    def _archive(self, name: str) -> Path:
        """The archive of the folder ``name``. A missing archive is downloaded."""
        file = self._folders[name]
        is_own = self.cache_dir is not None
        return fetched(file, self._root() / file.name, trusted=is_own)

    def _read_or_replace(self, path: Path, read: Callable[[Path], T]) -> T:
        """Return ``read(path)``; replaces a damaged file in the default cache."""
        binary, pickled = self._folders
        name = binary if path.suffix == ".bin" else pickled
        owned = path if path.parent == self._root() else path.parent
        return read_or_replace(
            path,
            read,
            lambda: extract_member(self._archive(name), path.name, path),
            owned=owned if self.cache_dir is not None else None,
        )

    def _files_in(self, name: str, folder: Path) -> tuple[Path, ...]:
        suffix = ".bin" if name == next(iter(self._folders)) else ""
        return tuple(folder / f"{batch}{suffix}" for batch in self._batches[self.split])

    def _read(self) -> Arrays:
        batches = [
            self._read_or_replace(path, self._read_batch) for path in self.files()
        ]
        return {
            name: np.concatenate([batch[name] for batch in batches])
            for name in batches[0]
        }

    def _read_batch(self, path: Path) -> Arrays:
        source = self._open_files(path)
        columns = source.read(np.arange(len(source)))
        return {
            name: column
            for (name, _, _), column in zip(source.schema, columns, strict=True)
        }

    def _open(self, cache: Path | str) -> _engine.Source:
        del cache  # files() unpacks the archive next to itself
        files = self.files()
        try:
            return self._open_files(*files)
        except DataError:
            for path in files:
                self._read_or_replace(path, self._open_files)
            return self._open_files(*files)

    def _open_files(self, *files: Path) -> _engine.Source:
        native = _engine.cifar_batches(list(files), self._classes)
        labels = range(1, len(native.schema))
        return recast(native, {at: (native.schema[at][0], "int32") for at in labels})


@public
@dataclass(frozen=True)
class CIFAR10Dataset(_CifarDataset):
    """CIFAR-10: photographs in 10 classes, 50,000 for training and 10,000 for testing.

    Samples are ``{"image": uint8[32, 32, 3], "label": int32}``. ``cache_dir`` is by
    default ``~/.cache/cyreal_cifar10``. It may contain the unpacked folder
    ``cifar-10-batches-bin`` or ``cifar-10-batches-py``, the files of either, or one of
    the archives. Otherwise the binary archive is downloaded into it.
    """

    _cache_name: ClassVar[str] = "cyreal_cifar10"
    _folders: ClassVar[dict[str, RemoteFile]] = {
        "cifar-10-batches-bin": RemoteFile(
            "cifar-10-binary.tar.gz",
            (
                f"{_HOME}cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/mirror.tensorflow.org/"
                "www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            ),
            folder="cifar10",
            size=170052171,
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
        "cifar-10-batches-py": RemoteFile(
            "cifar-10-python.tar.gz",
            (f"{_HOME}cifar-10-python.tar.gz", f"{_PADDLE}cifar-10-python.tar.gz"),
            folder="cifar10",
            size=170498071,
            sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    }
    _batches: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test": ("test_batch",),
    }
    _classes: ClassVar[int] = 10


@public
@dataclass(frozen=True)
class CIFAR100Dataset(_CifarDataset):
    """CIFAR-100: 60,000 photographs in 100 classes, which form 20 coarse classes.

    Samples are ``{"image": uint8[32, 32, 3], "label": int32, "coarse_label": int32}``.
    ``cache_dir`` is by default ``~/.cache/cifar100``. It may contain the unpacked
    folder ``cifar-100-binary`` or ``cifar-100-python``, the files of either, or one of
    the archives. Otherwise the binary archive is downloaded into it.
    """

    _cache_name: ClassVar[str] = "cifar100"
    _folders: ClassVar[dict[str, RemoteFile]] = {
        "cifar-100-binary": RemoteFile(
            "cifar-100-binary.tar.gz",
            (f"{_HOME}cifar-100-binary.tar.gz", f"{_MXNET}cifar-100-binary.tar.gz"),
            folder="cifar100",
            size=168513733,
            sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
        "cifar-100-python": RemoteFile(
            "cifar-100-python.tar.gz",
            (f"{_HOME}cifar-100-python.tar.gz", f"{_PADDLE}cifar-100-python.tar.gz"),
            folder="cifar100",
            size=169001437,
            sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        ),
    }
    _batches: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": ("train",),
        "test": ("test",),
    }
    _classes: ClassVar[int] = 100
