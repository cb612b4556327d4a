"""MNIST and the data sets that share its format: Fashion-MNIST, KMNIST, EMNIST."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from millstream._datasets.base import (
    ArrayDataset,
    Arrays,
    as_labels,
    cache_folder,
    check_choice,
    first_existing,
)
from millstream._download import RemoteFile, fetch
from millstream._errors import DataError
from millstream._idx import read_idx

_SPLITS = ("train", "test")
_STANDARD_NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def _remote_files(
    folder: str, bases: tuple[str, ...], checks: dict[str, tuple[int, str, str]]
) -> dict[str, RemoteFile]:
    files = {}
    for role, (size, sha256, md5) in checks.items():
        name = f"{_STANDARD_NAMES[role]}.gz"
        urls = tuple(base + name for base in bases)
        files[role] = RemoteFile(
            name, urls, folder=folder, size=size, sha256=sha256, md5=md5
        )
    return files


class _IdxDataset(ArrayDataset):
    """A pair of IDX files: uint8 images of one channel and their labels."""

    split: str
    cache_dir: str | Path | None
    _cache_name: ClassVar[str]
    _remote: ClassVar[dict[str, RemoteFile]]
    _system_folders: ClassVar[tuple[Path, ...]] = ()

    def __post_init__(self) -> None:
        check_choice("split", self.split, _SPLITS)

    def files(self) -> tuple[Path, ...]:
        """Return the paths of the images and of the labels, fetched where missing."""
        return self._file("images"), self._file("labels")

    def _folder(self) -> Path:
        return cache_folder(self.cache_dir, self._cache_name)

    def _names(self, content: str) -> tuple[str, ...]:
        role = f"{self.split}_{content}"
        standard = _STANDARD_NAMES[role]
        dotted = standard.replace("-idx", ".idx")
        return (f"{role}.gz", role, f"{standard}.gz", standard, f"{dotted}.gz", dotted)

    def _file(self, content: str) -> Path:
        names = self._names(content)
        for folder in (self._folder(), *self._system_folders):
            found = first_existing(folder, names)
            if found is not None:
                return found
        return self._fetch(content, self._folder() / names[0])

    def _fetch(self, content: str, target: Path) -> Path:
        return fetch(self._remote[f"{self.split}_{content}"], target)

    def _read(self) -> Arrays:
        images_path, labels_path = self.files()
        images = read_idx(images_path, ndim=3, dtype="uint8")
        labels = read_idx(labels_path, ndim=1, dtype="uint8")
        if len(images) != len(labels):
            raise DataError(
                f"{images_path} holds {len(images)} images, "
                f"{labels_path} holds {len(labels)} labels"
            )
        return {"image": images[..., np.newaxis], "label": as_labels(labels)}


@dataclass(frozen=True)
class MNISTDataset(_IdxDataset):
    """Handwritten digits: 60,000 images to train on and 10,000 to test with.

    Samples are ``{"image": uint8[28, 28, 1], "label": int32}``. The files are looked
    for in ``cache_dir`` (by default ``~/.cache/jax_mnist``) as
    ``{split}_{images,labels}.gz`` or under their published names, gzipped or not, and
    fetched when they are not there.
    """

    split: str = "train"
    cache_dir: str | Path | None = None

    _cache_name: ClassVar[str] = "jax_mnist"
    _remote: ClassVar[dict[str, RemoteFile]] = _remote_files(
        "mnist",
        (
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ),
        {
            "train_images": (
                9912422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            ),
            "train_labels": (
                28881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "d53e105ee54ea40749a09fcbcd1e9432",
            ),
            "test_images": (
                1648877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "9fb629c4189551a2d022fa330f9573f3",
            ),
            "test_labels": (
                4542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
        },
    )


@dataclass(frozen=True)
class FashionMNISTDataset(_IdxDataset):
    """Zalando's articles of clothing, in MNIST's format and numbers.

    Samples are ``{"image": uint8[28, 28, 1], "label": int32}``. Debian's package
    ``dataset-fashion-mnist`` is used when it is installed; else the files are looked
    for and fetched as in ``MNISTDataset``, in ``~/.cache/fashion_mnist`` by default.
    """

    split: str = "train"
    cache_dir: str | Path | None = None

    _cache_name: ClassVar[str] = "fashion_mnist"
    _system_folders: ClassVar[tuple[Path, ...]] = (
        Path("/usr/share/datasets/fashion-mnist"),
    )
    _remote: ClassVar[dict[str, RemoteFile]] = _remote_files(
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        {
            "train_images": (
                26421880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            ),
            "train_labels": (
                29515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "25c81989df183df01b3e8a0aad5dffbe",
            ),
            "test_images": (
                4422102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "bef4ecab320f06d8554ea6380940ec79",
            ),
            "test_labels": (
                5148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        },
    )


@dataclass(frozen=True)
class KMNISTDataset(_IdxDataset):
    """Kuzushiji-MNIST: ten characters of cursive Japanese, in MNIST's format.

    Samples are ``{"image": uint8[28, 28, 1], "label": int32}``. The files are looked
    for and fetched as in ``MNISTDataset``, in ``~/.cache/kmnist`` by default.
    """

    split: str = "train"
    cache_dir: str | Path | None = None

    _cache_name: ClassVar[str] = "kmnist"
    _remote: ClassVar[dict[str, RemoteFile]] = _remote_files(
        "kmnist",
        (
            "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
            "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
        ),
        {
            "train_images": (
                18165135,
                "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
                "bdb82020997e1d708af4cf47b453dcf7",
            ),
            "train_labels": (
                29497,
                "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
                "e144d726b3acfaa3e44228e80efcd344",
            ),
            "test_images": (
                3041136,
                "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
                "5c965bf0a639b31b8f53240b1b52f4d7",
            ),
            "test_labels": (
                5120,
                "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
                "7320c461ea6c1c855c0b718fb2a4b134",
            ),
        },
    )
