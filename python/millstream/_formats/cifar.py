"""Detects CIFAR-10 and CIFAR-100 in files, folders and archives."""

from __future__ import annotations

import mmap
import re
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from millstream._core.errors import data_error

_TEN = re.compile(r"(data_batch_[1-5]|test_batch)(\.bin)?")
_HUNDRED = re.compile(r"(train|test)(\.bin)?")
_IMAGE = 3 * 32 * 32


def batch_kind(path: Path, head: bytes) -> tuple[int, str] | None:
    """Returns ``(classes, "binary" or "pickled")``, or None for other files."""
    if head[:1] == b"\x80":
        with path.open("rb") as file, _mapped(file.fileno()) as content:
            fine = content.find(b"fine_labels") >= 0
        return (100 if fine else 10), "pickled"
    if _TEN.fullmatch(path.name):
        return 10, "binary" if path.suffix == ".bin" else "pickled"
    if path.suffix == ".bin":
        if _HUNDRED.fullmatch(path.name):
            return 100, "binary"
        size = path.stat().st_size
        for classes, labels in ((10, 1), (100, 2)):
            if size and size % (_IMAGE + labels) == 0:
                return classes, "binary"
    return None


def archive_kind(path: Path) -> int:
    """Returns the number of classes of CIFAR in an archive, by names of batches.

    Raises ``DataError`` if the archive holds no batch. If the archive is damaged before
    its first batch, its file name decides, and opening it reports the damage.
    """
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if member.isfile() and _TEN.fullmatch(name):
                    return 10
                if member.isfile() and _HUNDRED.fullmatch(name):
                    return 100
    except (tarfile.TarError, EOFError, zlib.error):
        return 100 if "100" in path.name else 10
    raise data_error(path=path, expected="CIFAR's batches in the archive", found="none")


def folder_splits(files: list[Path]) -> list[tuple[int, str, tuple[Path, ...]]]:
    """Returns ``(classes, split, files)`` of each split of CIFAR among ``files``."""
    splits: dict[tuple[int, str], list[Path]] = {}
    for file in files:
        if _TEN.fullmatch(file.name):
            split = "test" if file.name.startswith("test") else "train"
            splits.setdefault((10, split), []).append(file)
        elif _HUNDRED.fullmatch(file.name):
            splits.setdefault((100, file.name.partition(".")[0]), []).append(file)
    order = sorted(splits, key=lambda key: (key[0], key[1] != "train"))
    return [(*key, tuple(splits[key])) for key in order]


def _mapped(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
