"""CelebA: photographs of faces with forty attributes each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from millstream._core.errors import data_error
from millstream._core.public import public
from millstream._datasets.archive import extract_folder, is_filled
from millstream._datasets.base import (
    ArrayDataset,
    Arrays,
    Sample,
    cache_folder,
    check_choice,
    checked_index,
    fetched,
)
from millstream._datasets.download import RemoteFile

if TYPE_CHECKING:
    from millstream._sources.functions import DatasetSource

_SPLITS = ("train", "valid", "test")
_IMAGES = "img_align_celeba"
_PARTITION = "list_eval_partition.txt"
_ATTRIBUTES = "list_attr_celeba.txt"


def _on_drive(key: str) -> tuple[str, ...]:
    return (
        f"https://drive.usercontent.google.com/download?id={key}&export=download"
        "&confirm=t",
        f"https://drive.google.com/uc?export=download&id={key}",
    )


@public
@dataclass(frozen=True)
class CelebADataset(ArrayDataset):
    """Faces: samples are ``{"image": uint8[218, 178, 3], "attributes": int32[40]}``.

    The attributes are 0 or 1; ``attribute_names`` has their names. With
    ``include_attributes=False`` samples have the image only. ``data_dir`` (or
    ``cache_dir``, by default ``~/.cache/cyreal_celeba``) holds ``img_align_celeba/``,
    ``list_eval_partition.txt`` and ``list_attr_celeba.txt``. Missing files are
    downloaded.

    Pillow decodes an image when its sample is accessed. ``as_array_dict()`` decodes all
    images, which takes 19 GB of memory for the train split.
    """

    split: str = "train"
    cache_dir: str | Path | None = None
    _: KW_ONLY
    data_dir: str | Path | None = None
    include_attributes: bool = True

    _remote: ClassVar[dict[str, RemoteFile]] = {
        _IMAGES: RemoteFile(
            "img_align_celeba.zip",
            (
                *_on_drive("0B7EVK8r0v71pZjFTYXZWM3FlRnM"),
                "https://s3.amazonaws.com/pytorch-tutorial-assets/img_align_celeba.zip",
            ),
            folder="celeba",
            size=1443490838,
            sha256="46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
        ),
        _PARTITION: RemoteFile(
            _PARTITION,
            _on_drive("0B7EVK8r0v71pY0NSMzRuSXJEVkk"),
            folder="celeba",
            size=2836386,
            sha256="fc955bcb3ef8fbdf7d5640d9a8693a8431b5f2ee291a5c1449a1549e7e073fe7",
        ),
        _ATTRIBUTES: RemoteFile(
            _ATTRIBUTES,
            _on_drive("0B7EVK8r0v71pblRyaVFSWGxPY0U"),
            folder="celeba",
            size=26721026,
            sha256="f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
        ),
    }

    def __post_init__(self) -> None:
        """Check the arguments."""
        check_choice("split", self.split, _SPLITS)

    def files(self) -> tuple[Path, ...]:
        """Return the paths of this split's images in order."""
        return tuple(self._image_folder / name for name in self._image_names)

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of the attributes in order; empty without attributes."""
        return self._attributes[0]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._image_names)

    def __getitem__(self, index: int) -> Sample:
        """Return sample ``index``; a negative index counts from the end."""
        position = checked_index(index, len(self))
        sample: Sample = {
            "image": _decoder()(self._image_folder / self._image_names[position])
        }
        if self.include_attributes:
            sample["attributes"] = self._attributes[1][position]
        return sample

    def _read(self) -> Arrays:
        decode = _decoder()
        images: NDArray[np.uint8] | None = None
        for position, path in enumerate(self.files()):
            image = decode(path)
            if images is None:
                images = np.empty((len(self), *image.shape), np.uint8)
            if image.shape != images.shape[1:]:
                raise data_error(
                    path=path,
                    expected=f"an image of {list(images.shape[1:])}",
                    found=f"{list(image.shape)}",
                )
            images[position] = image
        assert images is not None
        arrays: Arrays = {"image": images}
        if self.include_attributes:
            arrays["attributes"] = self._attributes[1]
        return arrays

    @classmethod
    def make_disk_source(
        cls,
        *,
        split: str = "train",
        cache_dir: str | Path | None = None,
        ordering: Any = "shuffle",
        prefetch_size: int = 64,
        workers: int | None = None,
        worker_kind: str = "thread",
        **more: Any,
    ) -> DatasetSource:
        """Return a source that decodes samples on demand.

        Pillow releases the GIL while it decodes, so thread workers are enough. There is
        one per available CPU by default. ``prefetch_size`` is the number of samples to
        decode ahead. ``more`` may have ``data_dir`` and ``include_attributes``.
        """
        from millstream._sources.functions import DatasetSource

        return DatasetSource(
            cls(split=split, cache_dir=cache_dir, **more),
            ordering=ordering,
            prefetch_size=prefetch_size,
            workers=len(os.sched_getaffinity(0)) if workers is None else workers,
            worker_kind=worker_kind,
        )

    def _root(self) -> Path:
        if self.data_dir is not None:
            return Path(self.data_dir).expanduser()
        return cache_folder(self.cache_dir, "cyreal_celeba")

    def _fetched(self, name: str) -> Path:
        file = self._remote[name]
        is_own = self.data_dir is not None or self.cache_dir is not None
        return fetched(file, self._root() / file.name, trusted=is_own)

    @cached_property
    def _image_folder(self) -> Path:
        folder = self._root() / _IMAGES
        if not is_filled(folder):
            extract_folder(self._fetched(_IMAGES), _IMAGES, self._root())
        nested = folder / _IMAGES
        return nested if nested.exists() else folder

    @cached_property
    def _image_names(self) -> tuple[str, ...]:
        path = self._fetched(_PARTITION)
        wanted = str(_SPLITS.index(self.split))
        names = []
        for number, line in enumerate(_lines(path), start=1):
            words = line.split()
            if len(words) != 2 or words[1] not in ("0", "1", "2") or "/" in words[0]:
                raise data_error(
                    path=path,
                    line=number,
                    expected="a file name and 0, 1 or 2",
                    found=f"{line!r}",
                )
            if words[1] == wanted:
                names.append(words[0])
        if not names:
            raise data_error(
                path=path, expected=f"images of split {self.split!r}", found="none"
            )
        return tuple(names)

    @cached_property
    def _attributes(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        if not self.include_attributes:
            return (), np.empty((len(self), 0), np.int32)
        path = self._fetched(_ATTRIBUTES)
        lines = _lines(path)
        if len(lines) < 2:
            raise data_error(
                path=path, expected="a count and a line of names", found="neither"
            )
        names = tuple(lines[1].split())
        position_of = {name: at for at, name in enumerate(self._image_names)}
        values = np.zeros((len(self), len(names)), np.int32)
        for number, line in enumerate(lines[2:], start=3):
            image, *words = line.split()
            if len(words) != len(names) or not set(words) <= {"-1", "1"}:
                raise data_error(
                    path=path,
                    line=number,
                    expected=f"{len(names)} values of -1 or 1",
                    found=f"{line!r}",
                )
            position = position_of.pop(image, None)
            if position is not None:
                values[position] = [word == "1" for word in words]
        if position_of:
            missing = next(iter(position_of))
            raise data_error(
                path=path, expected=f"attributes of {missing}", found="none"
            )
        return names, values


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise data_error(path=path, offset=error.start, expected="text") from error
    return [line for line in text.splitlines() if line.strip()]


def _decoder() -> Callable[[Path], NDArray[np.uint8]]:
    import importlib

    try:
        pillow = importlib.import_module("PIL.Image")
    except ImportError as error:
        raise ImportError(
            "CelebADataset decodes images with Pillow, which is not installed: "
            "install the package pillow, for example with pip install pillow"
        ) from error

    def decode(path: Path) -> NDArray[np.uint8]:
        try:
            with pillow.open(path) as image:
                return np.asarray(image.convert("RGB"), np.uint8)
        except OSError as error:
            if error.errno is not None:
                raise
            raise data_error(f"damaged image: {error}", path=path) from error

    return decode
