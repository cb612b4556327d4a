"""The base class of data sets. Samples are rows of named arrays."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from millstream import _engine
from millstream._core.errors import DataError, DownloadError, error_fields
from millstream._datasets.download import RemoteFile, fetch

if TYPE_CHECKING:
    from millstream._sources.ordered import OrderedSource

Arrays = dict[str, NDArray[Any]]
Sample = dict[str, Any]
T = TypeVar("T")


class ArrayDataset:
    """A frozen description of a data set whose arrays are read on first use.

    Subclasses are frozen dataclasses. They define which files they need and how to read
    them. Equality, hash, repr and pickle ignore the arrays.
    """

    def files(self) -> tuple[Path, ...]:
        """Return the local files of this split. Missing files are downloaded."""
        raise NotImplementedError

    def _read(self) -> Arrays:
        raise NotImplementedError

    def _open(self, cache: Path | str) -> _engine.Source:
        """The same samples as an engine source; unpacks archives into ``cache``."""
        del cache
        raise TypeError(
            f"{type(self).__name__} cannot be read from disk. Use "
            "ArraySampleSource(dataset.as_array_dict())."
        )

    @classmethod
    def make_disk_source(
        cls,
        *,
        split: str = "train",
        cache_dir: str | Path | None = None,
        ordering: Any = "shuffle",
        prefetch_size: int = 64,
        **more: Any,
    ) -> OrderedSource:
        """Return a source that reads samples from their files on demand.

        The samples are those of the data set, with the same indices. ``prefetch_size``
        is the number of samples to read ahead. ``more`` are further arguments of the
        data set, such as EMNIST's ``subset``.
        """
        from millstream._datasets.disk import DatasetDiskSource

        dataset = cls(split=split, cache_dir=cache_dir, **more)  # type: ignore[call-arg]
        return DatasetDiskSource(dataset, ordering, prefetch_size)

    @cached_property
    def _arrays(self) -> Arrays:
        arrays = self._read()
        for array in arrays.values():
            array.flags.writeable = False
        return arrays

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, index: int) -> Sample:
        """Return sample ``index``; a negative index counts from the end."""
        position = checked_index(index, len(self))
        return {name: array[position] for name, array in self._arrays.items()}

    def __iter__(self) -> Iterator[Sample]:
        """Yield the samples in order."""
        return (self[index] for index in range(len(self)))

    def as_array_dict(self) -> Arrays:
        """Return all samples as read-only NumPy arrays, one for each field."""
        return dict(self._arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }


def checked_index(index: int, count: int) -> int:
    """Return ``index`` as a position in ``range(count)`` or raise ``IndexError``."""
    position = operator.index(index)
    if not -count <= position < count:
        raise IndexError(f"index {position} is out of range for {count} samples")
    return position % count


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}; found {value!r}")


def cache_folder(cache_dir: str | Path | None, default: str) -> Path:
    """Return ``cache_dir``, or the folder ``default`` in the user's cache."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    try:
        return Path.home() / ".cache" / default
    except RuntimeError as error:
        raise RuntimeError(
            f"there is no home folder for the cache .cache/{default}: set HOME, or "
            "pass cache_dir="
        ) from error


def first_existing(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the path of the first of ``names`` that exists in ``folder``."""
    return next((folder / name for name in names if (folder / name).exists()), None)


def read_or_replace(
    path: Path,
    read: Callable[[Path], T],
    replace: Callable[[], Path],
    *,
    owned: Path | None,
) -> T:
    """Return ``read(path)``; if the file is damaged, replace it and read it again.

    ``owned`` is a file or folder that the user provided, or None. It is never replaced.
    Instead the error tells the user to delete it.
    """
    try:
        return read(path)
    except DataError as error:
        if owned is not None:
            error.add_note(f"Delete {owned} to have it fetched again.")
            raise
        try:
            replaced = replace()
        except DownloadError as reason:
            message = f"{error}; the file was not replaced: {reason}"
            raise DataError(message, **error_fields(error)) from error
        return read(replaced)


def fetched(file: RemoteFile, target: Path, *, trusted: bool) -> Path:
    """Return ``target``; download it if it is missing.

    An existing file is checked first, unless ``trusted``. Files in a folder that the
    user chose are trusted. Files in the default cache are not.
    """
    return target if trusted and target.exists() else fetch(file, target)
