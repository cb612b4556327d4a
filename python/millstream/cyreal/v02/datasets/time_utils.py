"""The functions of Cyreal 0.2.x that cut time series into splits and windows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import millstream
from millstream import ArraySampleSource
from millstream._core.arguments import whole
from millstream._datasets.base import cache_folder, fetched
from millstream._datasets.download import RemoteFile
from millstream._datasets.series import read_values

__all__ = [
    "load_time_series_from_csv",
    "load_value_column",
    "make_sequence_disk_source",
    "prepare_seq_to_seq_windows",
    "prepare_time_series_windows",
    "select_split",
    "sliding_window_many",
]


def load_value_column(
    path: str | Path, *, skip_header: int, value_column: int
) -> NDArray[np.float32]:
    """Returns one column of a CSV file as float32. Columns are counted from 0.

    ``skip_header`` is the number of lines before the values. Raises ``DataError`` for a
    line without a finite number in that column.
    """
    lines = whole("skip_header", skip_header, 0)
    column = whole("value_column", value_column, 0)
    return read_values(Path(path), header_lines=lines, column=column)


def load_time_series_from_csv(
    *,
    cache_dir: str | Path | None,
    dataset_name: str,
    filename: str,
    url: str,
    data_path: str | Path | None,
    skip_header: int,
    value_column: int,
) -> NDArray[np.float32]:
    """Returns one column of the CSV file ``data_path`` as float32.

    If ``data_path`` is None, the file is ``filename`` in ``cache_dir``, by default
    ``~/.cache/cyreal_{dataset_name}``. It is downloaded from ``url`` if it is missing.
    """
    load = partial(
        load_value_column, skip_header=skip_header, value_column=value_column
    )
    if data_path is not None:
        return load(Path(data_path).expanduser())
    folder = cache_folder(cache_dir, f"cyreal_{dataset_name}")
    remote = RemoteFile(filename, (url,), folder=dataset_name, check=load)
    return load(fetched(remote, folder / filename, trusted=True))


def select_split(
    array: ArrayLike,
    split: str,
    train_fraction: float,
    context_length: int,
    val_fraction: float = 0.0,
) -> NDArray[Any]:
    """Returns the steps of a split; see ``millstream.select_split``."""
    return millstream.select_split(
        array,
        split,
        train_fraction=train_fraction,
        context_length=context_length,
        val_fraction=val_fraction,
    )


def sliding_window_many(
    array: ArrayLike, window_size: int, stride: int = 1, offset: int = 0
) -> NDArray[Any]:
    """Returns all windows; see ``millstream.sliding_window_many``."""
    return millstream.sliding_window_many(
        array, window_size, stride=stride, offset=offset
    )


def prepare_time_series_windows(
    series: ArrayLike,
    split: str,
    context_length: int,
    prediction_length: int,
    train_fraction: float,
    val_fraction: float = 0.0,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the windows of a split, and the steps that follow each of them.

    The steps of a window are the last axis: ``(time, features)`` gives contexts of the
    shape ``(windows, features, context_length)``.
    """
    contexts, targets = millstream.prepare_time_series_windows(
        series,
        split,
        context_length=context_length,
        prediction_length=prediction_length,
        train_fraction=train_fraction,
        val_fraction=val_fraction,
    )
    axis = 2 if np.ndim(series) >= 3 else 1
    return np.moveaxis(contexts, axis, -1), np.moveaxis(targets, axis, -1)


def prepare_seq_to_seq_windows(
    input_sequence: ArrayLike,
    target_sequence: ArrayLike,
    split: str,
    input_window_len: int,
    target_window_len: int,
    train_fraction: float = 0.8,
    val_fraction: float = 0.0,
    sliding_window_stride: int = 1,
    target_offset: int = 0,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns pairs of windows; see ``millstream.prepare_seq_to_seq_windows``."""
    return millstream.prepare_seq_to_seq_windows(
        input_sequence,
        target_sequence,
        split=split,
        input_window_len=input_window_len,
        target_window_len=target_window_len,
        train_fraction=train_fraction,
        val_fraction=val_fraction,
        sliding_window_stride=sliding_window_stride,
        target_offset=target_offset,
    )


def make_sequence_disk_source(
    *,
    contexts: ArrayLike,
    targets: ArrayLike,
    ordering: Any,
    prefetch_size: int,
) -> ArraySampleSource:
    """Returns a source of windows, ``{"context": ..., "target": ...}``, as float32."""
    arrays = {"contexts": contexts, "targets": targets}
    for name, array in arrays.items():
        if np.ndim(array) < 2:
            raise ValueError(
                f"make_sequence_disk_source: {name} must have the shape (windows, "
                f"steps, ...); found {np.shape(array)}"
            )
    return millstream.make_sequence_disk_source(
        contexts=np.asarray(contexts, np.float32),
        targets=np.asarray(targets, np.float32),
        ordering=ordering,
        prefetch_size=prefetch_size,
    )
