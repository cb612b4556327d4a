"""Cuts time series into splits and windows, without copying them.

A series has the shape ``(time,)`` or ``(time, features)``. An array with three or more
dimensions holds several series: ``(series, time, features)``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from millstream._core.public import public
from millstream._datasets.base import check_choice

if TYPE_CHECKING:
    from millstream._sources.arrays import ArraySampleSource

SPLITS = ("train", "val", "test")


def check_fractions(split: str, train_fraction: float, val_fraction: float) -> None:
    """Raise ``ValueError`` if the fractions are wrong or leave ``split`` empty."""
    check_choice("split", split, SPLITS)
    if not 0.0 < train_fraction < 1.0:
        raise ValueError(
            f"train_fraction must lie between 0 and 1; found {train_fraction}"
        )
    if not 0.0 <= val_fraction < 1.0:
        raise ValueError(
            f"val_fraction must be at least 0 and below 1; found {val_fraction}"
        )
    if train_fraction + val_fraction >= 1.0:
        raise ValueError(
            "train_fraction and val_fraction must add up to less than 1, so that the "
            f"test split is not empty; found {train_fraction} and {val_fraction}"
        )
    if split == "val" and val_fraction == 0.0:
        raise ValueError("split 'val' needs a val_fraction above 0; found 0.0")


@public
def select_split(
    array: ArrayLike,
    split: str,
    *,
    train_fraction: float,
    context_length: int,
    val_fraction: float = 0.0,
) -> NDArray[Any]:
    """Return the time steps of a series that belong to ``split``, as a view.

    ``"train"`` comes first, then ``"val"``, then ``"test"``. The last two start
    ``context_length`` steps earlier, so that their first target has a full context.
    """
    series = np.asarray(array)
    axis = _time_axis(series)
    check_fractions(split, train_fraction, val_fraction)
    check_at_least("context_length", context_length, 0)
    count = series.shape[axis]
    if count == 0:
        raise ValueError(
            f"a series needs at least one time step; found shape {series.shape}"
        )
    train_end = max(_fraction_of(count, train_fraction), 1)
    val_end = train_end
    if val_fraction > 0.0:
        val_end = max(_fraction_of(count, train_fraction + val_fraction), train_end + 1)
    start, end = {
        "train": (0, train_end),
        "val": (max(train_end - context_length, 0), min(val_end, count)),
        "test": (max(val_end - context_length, 0), count),
    }[split]
    return series[(slice(None),) * axis + (slice(start, end),)]


@public
def sliding_window_many(
    array: ArrayLike, window_size: int, *, stride: int = 1, offset: int = 0
) -> NDArray[Any]:
    """Return all windows of ``window_size`` steps, as a read-only view.

    The time axis becomes the axis of windows, and the steps within a window become the
    last axis: ``(time, features)`` gives ``(windows, features, window_size)``. The
    first window starts at ``offset``, and each next one ``stride`` steps later.
    """
    series = np.asarray(array)
    axis = _time_axis(series)
    check_at_least("window_size", window_size, 1)
    check_at_least("stride", stride, 1)
    check_at_least("offset", offset, 0)
    if series.shape[axis] < offset + window_size:
        raise ValueError(
            f"windows of {window_size} steps from step {offset} need "
            f"{offset + window_size} steps; found {series.shape[axis]}"
        )
    windows = sliding_window_view(series, window_size, axis=axis)
    return windows[(slice(None),) * axis + (slice(offset, None, stride),)]


@public
def prepare_time_series_windows(
    series: ArrayLike,
    split: str,
    *,
    context_length: int,
    prediction_length: int,
    train_fraction: float = 0.8,
    val_fraction: float = 0.0,
    stride: int = 1,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the windows of a split, and the steps that follow each of them.

    Contexts have the shape ``(windows, context_length)`` and targets ``(windows,
    prediction_length)``. An axis of features comes last and an axis of several series
    first. Both are views of ``series``.
    """
    return prepare_seq_to_seq_windows(
        series,
        series,
        split=split,
        input_window_len=context_length,
        target_window_len=prediction_length,
        train_fraction=train_fraction,
        val_fraction=val_fraction,
        sliding_window_stride=stride,
        target_offset=context_length,
    )


@public
def prepare_seq_to_seq_windows(
    input_sequence: ArrayLike,
    target_sequence: ArrayLike,
    *,
    split: str,
    input_window_len: int,
    target_window_len: int,
    train_fraction: float = 0.8,
    val_fraction: float = 0.0,
    sliding_window_stride: int = 1,
    target_offset: int = 0,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return windows of one series and the matching windows of another, as views.

    A target window starts ``target_offset`` steps after its input window. The next pair
    starts ``sliding_window_stride`` steps later. All targets lie in the split; inputs
    may start up to ``target_offset`` steps before it. The first target starts at the
    split's start, or later if its inputs would start before the series does.

    Shapes are ``(windows, steps)`` for ``(time,)``, ``(windows, steps, features)`` for
    ``(time, features)`` and ``(series, windows, steps, features)`` for several series.
    """
    inputs, targets = np.asarray(input_sequence), np.asarray(target_sequence)
    _check_aligned(inputs, targets)
    check_at_least("input_window_len", input_window_len, 1)
    check_at_least("target_window_len", target_window_len, 1)
    check_at_least("sliding_window_stride", sliding_window_stride, 1)
    check_at_least("target_offset", target_offset, 0)
    windows = []
    for series, size, offset in (
        (inputs, input_window_len, 0),
        (targets, target_window_len, target_offset),
    ):
        part = select_split(
            series,
            split,
            train_fraction=train_fraction,
            val_fraction=val_fraction,
            context_length=target_offset,
        )
        cut = sliding_window_many(
            part, size, stride=sliding_window_stride, offset=offset
        )
        windows.append(np.moveaxis(cut, -1, _time_axis(series) + 1))
    axis = _time_axis(inputs)
    count = min(cut.shape[axis] for cut in windows)
    contexts, answers = (
        cut[(slice(None),) * axis + (slice(count),)] for cut in windows
    )
    return contexts, answers


@public
def make_sequence_disk_source(
    *,
    contexts: ArrayLike,
    targets: ArrayLike,
    ordering: Any = "shuffle",
    prefetch_size: int = 64,
) -> ArraySampleSource:
    """Return a source of windows: ``{"context": ..., "target": ...}``.

    The windows are not copied. Views of a memory-mapped series stay on disk, and
    overlapping windows take no more memory than the series. ``prefetch_size`` has no
    effect; it exists for compatibility with Cyreal.
    """
    from millstream._sources.arrays import ArraySampleSource

    check_at_least("prefetch_size", prefetch_size, 1)
    return ArraySampleSource({"context": contexts, "target": targets}, ordering)


def _time_axis(series: NDArray[Any]) -> int:
    if series.ndim == 0:
        raise ValueError("a series needs at least one dimension; found a scalar")
    return 1 if series.ndim >= 3 else 0


def _fraction_of(count: int, fraction: float) -> int:
    return math.floor(count * fraction + 1e-9)


def check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}; found {value}")


def _check_aligned(inputs: NDArray[Any], targets: NDArray[Any]) -> None:
    axis = _time_axis(inputs)
    if _time_axis(targets) != axis:
        raise ValueError(
            "inputs and targets must both be one series or both be several; "
            f"found shapes {inputs.shape} and {targets.shape}"
        )
    if inputs.shape[: axis + 1] != targets.shape[: axis + 1]:
        raise ValueError(
            "inputs and targets must agree in time and in the number of series; "
            f"found shapes {inputs.shape} and {targets.shape}"
        )
