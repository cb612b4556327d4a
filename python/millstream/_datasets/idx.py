"""The base class of data sets in MNIST's format: two IDX files for each split."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np

from millstream import _engine
from millstream._core.errors import data_error
from millstream._datasets.base import (
    ArrayDataset,
    Arrays,
    cache_folder,
    check_choice,
    first_existing,
    read_or_replace,
)
from millstream._datasets.download import RemoteFile, fetch
from millstream._sources.ordered import described, recast

STANDARD_NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


class IdxDataset(ArrayDataset):
    """Two IDX files: uint8 images with one channel, and their labels."""

    split: str
    cache_dir: str | Path | None
    _cache_name: ClassVar[str]
    _remote: ClassVar[dict[str, RemoteFile]]
    _system_folders: ClassVar[tuple[Path, ...]] = ()

    def __post_init__(self) -> None:
        check_choice("split", self.split, ("train", "test"))

    def files(self) -> tuple[Path, ...]:
        """Return the image file and the label file. Missing files are downloaded."""
        return self._file("images"), self._file("labels")

    def _folder(self) -> Path:
        return cache_folder(self.cache_dir, self._cache_name)

    def _cache(self) -> Path | None:
        """The data set's folder, or None if the user has no home folder."""
        try:
            return self._folder()
        except RuntimeError:
            return None

    def _names(self, content: str) -> tuple[str, ...]:
        role = f"{self.split}_{content}"
        standard = STANDARD_NAMES[role]
        dotted = standard.replace("-idx", ".idx")
        return (f"{role}.gz", role, f"{standard}.gz", standard, f"{dotted}.gz", dotted)

    def _file(self, content: str) -> Path:
        names = self._names(content)
        for folder in (self._cache(), *self._system_folders):
            found = first_existing(folder, names) if folder else None
            if found is not None:
                return found
        return self._fetch(content, self._folder() / names[0])

    def _fetch(self, content: str, target: Path) -> Path:
        return fetch(self._remote[f"{self.split}_{content}"], target)

    def _read(self) -> Arrays:
        # The arrays stay in memory, so the unpacked files are not needed afterwards.
        with TemporaryDirectory(prefix="millstream-") as cache:
            native = self._open(Path(cache))
            fields = native.read(np.arange(len(native)))
        return {
            name: data.view(dtype).reshape(-1, *shape)
            for data, (name, dtype, shape) in zip(fields, native.schema, strict=True)
        }

    _transposed: ClassVar[bool] = False

    def _open(self, cache: Path | str) -> _engine.Source:
        def usable(content: str, path: Path, rank: int) -> tuple[str, list[Path]]:
            def check(path: Path) -> Path:
                (spec,) = _engine.idx([(content, [path])], cache).schema
                if spec[1] != "uint8" or len(spec[2]) != rank:
                    raise data_error(
                        path=path,
                        expected=f"{content} of uint8 in {rank + 1} dimensions",
                        found=f"rows of {described(spec)}",
                    )
                return path

            if path.parent != self._cache():
                return content, [check(path)]
            usable_path = read_or_replace(
                path,
                check,
                lambda: self._fetch(content, path.parent / self._names(content)[0]),
                owned=path if self.cache_dir is not None else None,
            )
            return content, [usable_path]

        images_path, labels_path = self.files()
        images = usable("images", images_path, 2)
        labels = usable("labels", labels_path, 0)
        native = _engine.idx([images, labels], cache)
        (_, _, shape), _ = native.schema
        if self._transposed:
            shape = shape[::-1]
        image = ("image", "uint8", (*shape, 1), self._transposed)
        return recast(native, {0: image, 1: ("label", "int32")})
