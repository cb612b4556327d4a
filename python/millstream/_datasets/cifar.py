"""CIFAR-10 and CIFAR-100: small colour photographs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from millstream import _engine
from millstream._archive import extract_folder, extract_member
from millstream._datasets.base import (
    ArrayDataset,
    Arrays,
    T,
    cache_folder,
    check_choice,
    fetched,
    mended,
)
from millstream._datasets.pickled import read_pickled_dict
from millstream._download import RemoteFile
from millstream._errors import DataError
from millstream._samples import recast

_PIXELS = 3 * 32 * 32
_HOME = "https://www.cs.toronto.edu/~kriz/"
_PADDLE = "https://dataset.bj.bcebos.com/cifar/"
_MXNET = (
    "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/gluon/dataset/cifar100/"
)


@dataclass(frozen=True)
class _CifarDataset(ArrayDataset):
    """Images in the binary or the Python archive's files, whichever are there."""

    split: str = "train"
    cache_dir: str | Path | None = None

    _cache_name: ClassVar[str]
    _folders: ClassVar[dict[str, RemoteFile]]
    _batches: ClassVar[dict[str, tuple[str, ...]]]
    _labels: ClassVar[dict[str, tuple[str, int]]]

    def __post_init__(self) -> None:
        check_choice("split", self.split, ("train", "test"))

    def files(self) -> tuple[Path, ...]:
        """Return the files of this split in order: ``.bin``, or pickled without one."""
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
        if all(path.is_file() for path in files):  # "train" may well be a folder
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
                    raise DataError(
                        f"{path.parent}: expected {path.name}, found none; "
                        f"delete the folder to have {archive.name} unpacked again"
                    )
                extract_member(archive, path.name, path)
        return files

    def _root(self) -> Path:
        return cache_folder(self.cache_dir, self._cache_name)

    def _archive(self, name: str) -> Path:
        """The archive of a folder, fetched where it is missing."""
        file = self._folders[name]
        is_own = self.cache_dir is not None
        return fetched(file, self._root() / file.name, trusted=is_own)

    def _mended(self, path: Path, read: Callable[[Path], T]) -> T:
        """Return ``read(path)``, of a damaged file in the default cache a new copy."""
        binary, pickled = self._folders
        name = binary if path.suffix == ".bin" else pickled
        owned = path if path.parent == self._root() else path.parent
        return mended(
            path,
            read,
            lambda: extract_member(self._archive(name), path.name, path),
            owned=owned if self.cache_dir is not None else None,
        )

    def _files_in(self, name: str, folder: Path) -> tuple[Path, ...]:
        suffix = ".bin" if name == next(iter(self._folders)) else ""
        return tuple(folder / f"{batch}{suffix}" for batch in self._batches[self.split])

    def _read(self) -> Arrays:
        batches = [self._mended(path, self._read_batch) for path in self.files()]
        images = np.concatenate([pixels for pixels, _ in batches])
        arrays: Arrays = {
            "image": np.ascontiguousarray(
                images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            )
        }
        for name in self._labels:
            arrays[name] = np.concatenate([labels[name] for _, labels in batches])
        return arrays

    def _open(self, cache: Path) -> _engine.Source:
        del cache  # the archive is unpacked where it lies
        files = self.files()
        try:
            native = self._opened(*files)
        except DataError:
            for path in files:
                self._mended(path, self._opened)
            native = self._opened(*files)
        labels = {
            position: (name, "int32")
            for position, (name, _, _) in enumerate(native.schema)
            if name in self._labels
        }
        return recast(native, labels)

    def _opened(self, *files: Path) -> _engine.Source:
        _, classes = self._labels["label"]
        return _engine.cifar_batches(list(files), classes)

    def _read_batch(self, path: Path) -> tuple[NDArray[np.uint8], Arrays]:
        if path.is_dir():
            raise DataError(f"{path}: expected a file, found a directory")
        is_binary = path.suffix == ".bin"
        return self._read_binary(path) if is_binary else self._read_pickled(path)

    def _read_binary(self, path: Path) -> tuple[NDArray[np.uint8], Arrays]:
        content = np.fromfile(path, np.uint8)
        record = len(self._labels) + _PIXELS
        if len(content) == 0 or len(content) % record:
            raise DataError(
                f"{path}: expected records of {record} bytes, found {len(content)} "
                f"bytes, {len(content) % record} of them after the last whole record"
            )
        rows = content.reshape(-1, record)
        first_label = record - _PIXELS - 1
        labels = {
            name: self._checked_labels(path, name, rows[:, first_label - position])
            for position, name in enumerate(self._labels)
        }
        return rows[:, -_PIXELS:], labels

    def _read_pickled(self, path: Path) -> tuple[NDArray[np.uint8], Arrays]:
        batch = read_pickled_dict(path)
        pixels = batch.get("data")
        if (
            not isinstance(pixels, np.ndarray)
            or pixels.dtype != np.uint8
            or pixels.ndim == 0
            or pixels.size != len(pixels) * _PIXELS
        ):
            found = (
                f"{pixels.dtype}{list(pixels.shape)}"
                if isinstance(pixels, np.ndarray)
                else type(pixels).__name__
            )
            raise DataError(
                f"{path}: expected 'data' to be uint8[N, {_PIXELS}], found {found}"
            )
        labels = {}
        for name, (key, _) in self._labels.items():
            values = _as_array(batch.get(key, []))
            if values.shape != (len(pixels),) or values.dtype.kind not in "iu":
                raise DataError(
                    f"{path}: expected {len(pixels)} whole numbers in {key!r}, "
                    f"found {values.dtype}{list(values.shape)}"
                )
            labels[name] = self._checked_labels(path, name, values)
        return pixels.reshape(-1, _PIXELS), labels

    def _checked_labels(
        self, path: Path, name: str, values: NDArray[Any]
    ) -> NDArray[np.int32]:
        _, classes = self._labels[name]
        wrong = np.flatnonzero((values < 0) | (values >= classes))
        if len(wrong):
            raise DataError(
                f"{path}: sample {wrong[0]}: expected {name} below {classes}, "
                f"found {values[wrong[0]]}"
            )
        return values.astype(np.int32)


def _as_array(values: object) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        return np.array(None)


@dataclass(frozen=True)
class CIFAR10Dataset(_CifarDataset):
    """Photographs of ten kinds of things: 50,000 to train on and 10,000 to test with.

    Samples are ``{"image": uint8[32, 32, 3], "label": int32}``. In ``cache_dir`` (by
    default ``~/.cache/cyreal_cifar10``) the unpacked folders ``cifar-10-batches-bin``
    and ``cifar-10-batches-py`` are looked for, then their files without a folder, then
    their archives; the binary archive is fetched when none is there.
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
            md5="c58f30108f718f92721af3b95e74349a",
        ),
    }
    _batches: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test": ("test_batch",),
    }
    _labels: ClassVar[dict[str, tuple[str, int]]] = {"label": ("labels", 10)}


@dataclass(frozen=True)
class CIFAR100Dataset(_CifarDataset):
    """Photographs of a hundred kinds of things in twenty groups, 60,000 in all.

    Samples are ``{"image": uint8[32, 32, 3], "label": int32, "coarse_label": int32}``.
    In ``cache_dir`` (by default ``~/.cache/cifar100``) the unpacked folders
    ``cifar-100-binary`` and ``cifar-100-python`` are looked for, then their files
    without a folder, then their archives; the binary archive is fetched when none is
    there.
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
            md5="eb9058c3a382ffc7106e4002c42a8d85",
        ),
    }
    _batches: ClassVar[dict[str, tuple[str, ...]]] = {
        "train": ("train",),
        "test": ("test",),
    }
    _labels: ClassVar[dict[str, tuple[str, int]]] = {
        "label": ("fine_labels", 100),
        "coarse_label": ("coarse_labels", 20),
    }
