"""Two short time series, cut into windows for forecasting."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from millstream._core.errors import DataError, data_error, error_fields
from millstream._core.public import public
from millstream._datasets.base import ArrayDataset, Arrays, cache_folder, fetched
from millstream._datasets.download import RemoteFile
from millstream._datasets.windows import (
    check_at_least,
    check_fractions,
    make_sequence_disk_source,
    prepare_time_series_windows,
)

if TYPE_CHECKING:
    from millstream._sources.arrays import ArraySampleSource

_BASES = (
    "https://raw.githubusercontent.com/jbrownlee/Datasets/master/",
    "https://cdn.jsdelivr.net/gh/jbrownlee/Datasets@master/",
)
_LINE = 100
"""The maximum number of bytes in a line of a published file."""
_SHOWN = 60
"""The maximum number of characters of a wrong line in an error message."""


def read_values(
    path: Path, count: int | None = None, *, header_lines: int = 1, column: int = 1
) -> NDArray[np.float32]:
    """Return one column of a CSV file as float32. Columns are counted from 0.

    Raises ``DataError`` for a line without a finite number in that column, or if
    ``count`` is given and the file has another number of values.
    """
    import csv

    if path.is_dir():
        raise data_error(path=path, expected="a CSV file", found="a directory")
    values = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for _ in range(header_lines):
                stream.readline()
            rows = csv.reader(stream, strict=True)
            for row in rows:
                if row:
                    line = header_lines + rows.line_num
                    values.append(_number(path, line, row, column))
    except (UnicodeDecodeError, csv.Error) as error:
        raise data_error(path=path, expected=f"a CSV file: {error}") from error
    if not values:
        raise data_error(
            path=path,
            expected="a header line and values" if header_lines == 1 else "values",
            found="no values",
        )
    if count is not None and len(values) != count:
        raise data_error(path=path, expected=f"{count} values", found=str(len(values)))
    return np.array(values, np.float32)


def _published(name: str, count: int, *, folder: str) -> RemoteFile:
    return RemoteFile(
        name,
        tuple(base + name for base in _BASES),
        folder=folder,
        limit=count * _LINE,
        check=partial(read_values, count=count),
    )


def _number(path: Path, line: int, row: list[str], column: int) -> float:
    try:
        value = float(row[column])
    except (IndexError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        found = ",".join(row)
        shown = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}..."
        raise data_error(
            path=path,
            line=line,
            expected=f"a number in column {column + 1}",
            found=f"{shown!r}",
        )
    return value


@dataclass(frozen=True)
class _SeriesDataset(ArrayDataset):
    """Windows of a series in a CSV file."""

    split: str = "train"
    _: KW_ONLY
    overlapping: bool = True
    context_length: int = 30
    prediction_length: int = 1
    train_fraction: float = 0.8
    val_fraction: float = 0.0
    cache_dir: str | Path | None = None
    data_path: str | Path | None = None

    _cache_name: ClassVar[str]
    _remote: ClassVar[RemoteFile]
    _count: ClassVar[int]

    def __post_init__(self) -> None:
        check_fractions(self.split, self.train_fraction, self.val_fraction)
        for name in ("context_length", "prediction_length"):
            check_at_least(name, getattr(self, name), 1)

    def files(self) -> tuple[Path, ...]:
        """Return the path of the CSV file. A missing file is downloaded."""
        if self.data_path is not None:
            return (Path(self.data_path).expanduser(),)
        folder = cache_folder(self.cache_dir, self._cache_name)
        return (fetched(self._remote, folder / self._remote.name, trusted=True),)

    @classmethod
    def make_disk_source(
        cls, *, ordering: Any = "shuffle", prefetch_size: int = 64, **options: Any
    ) -> ArraySampleSource:
        """Return a source of the windows; ``options`` are those of the data set.

        The series is read into memory once. Its windows are views of it.
        """
        arrays = cls(**options).as_array_dict()
        return make_sequence_disk_source(
            contexts=arrays["context"],
            targets=arrays["target"],
            ordering=ordering,
            prefetch_size=prefetch_size,
        )

    def _values(self) -> NDArray[np.float32]:
        (path,) = self.files()
        if self.data_path is not None:
            return read_values(path)
        try:
            # The user's own folder may hold another series under the same name.
            return read_values(path, self._count if self.cache_dir is None else None)
        except DataError as error:
            message = f"{error}; delete {path} to have it fetched again"
            raise DataError(message, **error_fields(error)) from error

    def _read(self) -> Arrays:
        values = self._values()
        step = 1 if self.overlapping else self.context_length + self.prediction_length
        contexts, targets = prepare_time_series_windows(
            values,
            self.split,
            context_length=self.context_length,
            prediction_length=self.prediction_length,
            train_fraction=self.train_fraction,
            val_fraction=self.val_fraction,
            stride=step,
        )
        return {"context": contexts, "target": targets}


@public
@dataclass(frozen=True)
class DailyMinTemperaturesDataset(_SeriesDataset):
    """The minimum temperature of each day in Melbourne, 1981 to 1990.

    Samples are ``{"context": float32[context_length], "target":
    float32[prediction_length]}``. A window starts at every step; without
    ``overlapping``, windows have no step in common. The CSV file is ``data_path``. If
    that is None, the file is in ``cache_dir`` (by default
    ``~/.cache/cyreal_daily_min_temperatures``) and is downloaded if it is missing.
    """

    _cache_name: ClassVar[str] = "cyreal_daily_min_temperatures"
    _count: ClassVar[int] = 3650
    _remote: ClassVar[RemoteFile] = _published(
        "daily-min-temperatures.csv", _count, folder="daily-min-temperatures"
    )


@public
@dataclass(frozen=True)
class SunspotsDataset(_SeriesDataset):
    """The number of sunspots in each month from 1749 to 1983.

    Samples are ``{"context": float32[context_length], "target":
    float32[prediction_length]}``. A window starts at every step; without
    ``overlapping``, windows have no step in common. The CSV file is ``data_path``. If
    that is None, the file is in ``cache_dir`` (by default ``~/.cache/cyreal_sunspots``)
    and is downloaded if it is missing.
    """

    _: KW_ONLY
    context_length: int = 24

    _cache_name: ClassVar[str] = "cyreal_sunspots"
    _count: ClassVar[int] = 2820
    _remote: ClassVar[RemoteFile] = _published(
        "monthly-sunspots.csv", _count, folder="sunspots"
    )
