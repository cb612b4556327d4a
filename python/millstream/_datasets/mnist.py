"""MNIST and the data sets with the same file format: Fashion-MNIST and KMNIST."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from millstream._core.public import public
from millstream._datasets.download import RemoteFile
from millstream._datasets.idx import STANDARD_NAMES, IdxDataset


def _remote_files(
    folder: str, bases: tuple[str, ...], sizes: tuple[int, ...], sums: tuple[str, ...]
) -> dict[str, RemoteFile]:
    """The files of a data set; ``sizes`` and ``sums`` follow ``STANDARD_NAMES``."""
    files = {}
    for role, size, sha256 in zip(STANDARD_NAMES, sizes, sums, strict=True):
        name = f"{STANDARD_NAMES[role]}.gz"
        urls = tuple(base + name for base in bases)
        files[role] = RemoteFile(name, urls, folder=folder, size=size, sha256=sha256)
    return files


@public
@dataclass(frozen=True)
class MNISTDataset(IdxDataset):
    """MNIST: handwritten digits, 60,000 for training and 10,000 for testing.

    Samples are ``{"image": uint8[28, 28, 1], "label": int32}``. ``cache_dir`` is by
    default ``~/.cache/jax_mnist``. It may contain the files under their published
    names, or as ``{split}_{images,labels}.gz``, gzipped or not. Otherwise they are
    downloaded into it.
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
        sizes=(9912422, 28881, 1648877, 4542),
        sums=(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    )


@public
@dataclass(frozen=True)
class FashionMNISTDataset(IdxDataset):
    """Fashion-MNIST: Zalando's articles of clothing, in MNIST's format and sizes.

    Samples are ``{"image": uint8[28, 28, 1], "label": int32}``. ``cache_dir`` is by
    default ``~/.cache/fashion_mnist``, and may contain the same files as that of
    ``MNISTDataset``. Otherwise the files of Debian's package ``dataset-fashion-mnist``
    are used if it is installed, or else they are downloaded.
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
        sizes=(26421880, 29515, 4422102, 5148),
        sums=(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    )


@public
@dataclass(frozen=True)
class KMNISTDataset(IdxDataset):
    """Kuzushiji-MNIST: ten characters of cursive Japanese, in MNIST's format.

    Samples are ``{"image": uint8[28, 28, 1], "label": int32}``. ``cache_dir`` is by
    default ``~/.cache/kmnist``, and may contain the same files as that of
    ``MNISTDataset``. Otherwise they are downloaded into it.
    """

    split: str = "train"
    cache_dir: str | Path | None = None

    _cache_name: ClassVar[str] = "kmnist"
    _remote: ClassVar[dict[str, RemoteFile]] = _remote_files(
        "kmnist",
        (
            "https://codh.rois.ac.jp/kmnist/dataset/kmnist/",
            "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/KMNIST/",
        ),
        sizes=(18165135, 29497, 3041136, 5120),
        sums=(
            "51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",
            "e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",
            "edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",
            "20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",
        ),
    )
