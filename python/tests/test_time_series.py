"""Splits and windows of time series, compared with plain loops."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import file_server
import numpy as np
import pytest
from file_server import FileServer
from millstream import (
    DailyMinTemperaturesDataset,
    SunspotsDataset,
    prepare_seq_to_seq_windows,
    prepare_time_series_windows,
    select_split,
    sliding_window_many,
)
from millstream._core.errors import DataError, DownloadError

SERIES = np.arange(20, dtype=np.float32)


def test_splits_follow_each_other_with_history() -> None:
    def steps(split: str, context: int = 3) -> list[float]:
        return select_split(
            SERIES, split, train_fraction=0.5, val_fraction=0.2, context_length=context
        ).tolist()

    assert steps("train") == list(range(10))
    assert steps("val") == list(range(7, 14))
    assert steps("test") == list(range(11, 20))
    assert steps("test", context=100) == list(range(20))
    assert steps("val", context=0) == list(range(10, 14))


def test_fractions_are_not_lost_to_rounding() -> None:
    options: dict[str, Any] = {"context_length": 0, "train_fraction": 0.7}
    ten = np.arange(10)
    assert len(select_split(ten, "val", val_fraction=0.2, **options)) == 2
    hundred = np.arange(100)
    options["train_fraction"] = 0.29
    assert len(select_split(hundred, "train", **options)) == 29


def test_the_time_axis_is_the_second_of_several_series() -> None:
    options: dict[str, Any] = {"train_fraction": 0.5, "context_length": 1}
    assert select_split(np.zeros((20, 3)), "test", **options).shape == (11, 3)
    assert select_split(np.zeros((4, 20, 3)), "test", **options).shape == (4, 11, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "split must be one of 'train', 'val', 'test'; found 'dev'"),
        ({"train_fraction": 0.0}, "train_fraction"),
        ({"train_fraction": 1.0}, "train_fraction"),
        ({"val_fraction": -0.1}, "val_fraction"),
        ({"train_fraction": 0.5, "val_fraction": 0.5}, "0.5 and 0.5"),
        ({"split": "val"}, "needs a val_fraction"),
        ({"context_length": -1}, "context_length must be at least 0; found -1"),
        ({"array": np.zeros(0)}, "at least one time step"),
        ({"array": np.float32(1)}, "scalar"),
    ],
)
def test_bad_splits_are_refused(options: dict[str, Any], message: str) -> None:
    given = {
        "array": SERIES,
        "split": "train",
        "train_fraction": 0.8,
        "context_length": 2,
        **options,
    }
    with pytest.raises(ValueError, match=message):
        select_split(given.pop("array"), given.pop("split"), **given)


@pytest.mark.parametrize("stride", [1, 2, 7])
@pytest.mark.parametrize("offset", [0, 3])
def test_windows_against_a_loop(stride: int, offset: int) -> None:
    starts = range(offset, 20 - 5 + 1, stride)
    expected = [SERIES[start : start + 5] for start in starts]
    found = sliding_window_many(SERIES, 5, stride=stride, offset=offset)
    np.testing.assert_array_equal(found, expected)
    assert np.shares_memory(found, SERIES)
    table = np.stack([SERIES, -SERIES], axis=1)
    found = sliding_window_many(table, 5, stride=stride, offset=offset)
    np.testing.assert_array_equal(
        found, [table[start : start + 5].T for start in starts]
    )
    several = np.stack([table, table + 100])
    found = sliding_window_many(several, 5, stride=stride, offset=offset)
    assert found.shape == (2, len(starts), 2, 5)


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        (0, {}, "window_size must be at least 1; found 0"),
        (2, {"stride": 0}, "stride must be at least 1; found 0"),
        (2, {"offset": -1}, "offset must be at least 0; found -1"),
        (21, {}, "need 21 steps; found 20"),
        (18, {"offset": 3}, "need 21 steps; found 20"),
    ],
)
def test_bad_windows_are_refused(
    size: int, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sliding_window_many(SERIES, size, **options)


def test_forecast_windows_are_followed_by_their_targets() -> None:
    contexts, targets = prepare_time_series_windows(
        SERIES, "train", context_length=4, prediction_length=3, train_fraction=0.5
    )
    np.testing.assert_array_equal(contexts, [range(s, s + 4) for s in range(4)])
    np.testing.assert_array_equal(targets, [range(s + 4, s + 7) for s in range(4)])


def test_targets_of_a_split_lie_in_it_and_cover_it() -> None:
    _, targets = prepare_time_series_windows(
        SERIES, "test", context_length=4, prediction_length=1, train_fraction=0.5
    )
    assert targets[:, 0].tolist() == list(range(10, 20))


SPLIT_STEPS = {"train": range(10), "val": range(10, 14), "test": range(14, 20)}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("split", SPLIT_STEPS)
@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 7, 12])
def test_all_targets_of_a_split_lie_in_it_at_any_offset(
    split: str, offset: int, length: int, stride: int
) -> None:
    steps = SPLIT_STEPS[split]
    starts = [
        at
        for at in range(max(steps.start - offset, 0), 20, stride)
        if max(at + 2, at + offset + length) <= steps.stop
    ]
    options: dict[str, Any] = {"train_fraction": 0.5, "val_fraction": 0.2}

    def cut() -> tuple[Any, Any]:
        return prepare_seq_to_seq_windows(
            SERIES,
            SERIES,
            split=split,
            input_window_len=2,
            target_window_len=length,
            target_offset=offset,
            sliding_window_stride=stride,
            **options,
        )

    if not starts:
        with pytest.raises(ValueError, match="steps; found"):
            cut()
        return
    contexts, targets = cut()
    assert contexts.tolist() == [[at, at + 1] for at in starts]
    assert targets.tolist() == [
        list(range(at + offset, at + offset + length)) for at in starts
    ]
    assert set(targets.ravel()) <= set(steps)
    if offset == 2:
        forecast = prepare_time_series_windows(
            SERIES,
            split,
            context_length=2,
            prediction_length=length,
            stride=stride,
            **options,
        )
        np.testing.assert_array_equal(contexts, forecast[0])
        np.testing.assert_array_equal(targets, forecast[1])


def test_features_and_several_series_keep_their_order() -> None:
    table = np.stack([SERIES, -SERIES, 2 * SERIES], axis=1)
    options: dict[str, Any] = {"context_length": 4, "prediction_length": 2}
    contexts, targets = prepare_time_series_windows(table, "train", **options)
    assert (contexts.shape, targets.shape) == ((11, 4, 3), (11, 2, 3))
    np.testing.assert_array_equal(contexts[5], table[5:9])
    np.testing.assert_array_equal(targets[5], table[9:11])
    assert contexts[0].flags.c_contiguous
    several = np.stack([table, table + 100])
    contexts, targets = prepare_time_series_windows(several, "train", **options)
    assert (contexts.shape, targets.shape) == ((2, 11, 4, 3), (2, 11, 2, 3))
    np.testing.assert_array_equal(contexts[1, 5], table[5:9] + 100)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("offset", [0, 2, 4])
@pytest.mark.parametrize("length", [2, 4, 6])
def test_sequence_to_sequence_against_a_loop(
    stride: int, offset: int, length: int
) -> None:
    answers = -SERIES
    contexts, targets = prepare_seq_to_seq_windows(
        SERIES,
        answers,
        split="train",
        input_window_len=4,
        target_window_len=length,
        sliding_window_stride=stride,
        target_offset=offset,
    )
    starts = [
        start
        for start in range(0, 16, stride)
        if start + 4 <= 16 and start + offset + length <= 16
    ]
    np.testing.assert_array_equal(contexts, [SERIES[s : s + 4] for s in starts])
    np.testing.assert_array_equal(
        targets, [answers[s + offset : s + offset + length] for s in starts]
    )


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [((20,), (19,)), ((20, 3), (3, 20)), ((2, 20, 3), (3, 20, 3)), ((2, 20, 3), (20,))],
)
def test_series_of_different_shapes_are_refused(
    inputs: tuple[int, ...], targets: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="inputs and targets must"):
        prepare_seq_to_seq_windows(
            np.zeros(inputs),
            np.zeros(targets),
            split="train",
            input_window_len=2,
            target_window_len=2,
        )


def csv_file(path: Path, count: int = 100) -> Path:
    rows = [f'"1981-{day:03}",{day}.5' for day in range(count)]
    path.write_text('"Date","Temp"\n' + "\n".join(rows) + "\n\n")
    return path


def test_a_data_set_from_its_cache(tmp_path: Path) -> None:
    csv_file(tmp_path / "daily-min-temperatures.csv")
    dataset = DailyMinTemperaturesDataset(cache_dir=tmp_path)
    assert len(dataset) == 50
    assert dataset[0]["context"].tolist() == [day + 0.5 for day in range(30)]
    assert dataset[0]["target"].tolist() == [30.5]
    arrays = dataset.as_array_dict()
    assert (arrays["context"].shape, arrays["target"].shape) == ((50, 30), (50, 1))
    assert arrays["context"].dtype == np.float32
    assert dataset.files() == (tmp_path / "daily-min-temperatures.csv",)


def test_a_data_set_from_a_path(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "mine.csv")
    dataset = SunspotsDataset("test", data_path=path, prediction_length=2)
    assert len(dataset) == 19
    assert dataset[0]["target"].tolist() == [80.5, 81.5]
    assert dataset[-1]["target"].tolist() == [98.5, 99.5]


def test_windows_that_do_not_overlap(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "mine.csv")
    dataset = SunspotsDataset(
        data_path=path, overlapping=False, context_length=3, prediction_length=2
    )
    steps = [
        step
        for sample in dataset
        for step in (*sample["context"].tolist(), *sample["target"].tolist())
    ]
    assert steps == [day + 0.5 for day in range(80)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found no values"),
        ("Date,Temp\n", "found no values"),
        ("Date,Temp\n1981,1.5\n1982,?0.2\n", "line 3: expected a number in column 2"),
        ("Date,Temp\n1981\n", "line 2: .* found '1981'"),
        ("Date,Temp\n1981,nan\n", "line 2"),
        ('Date,Temp\n"1981,2\n', "expected a CSV file"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        len(SunspotsDataset(data_path=path))
    assert str(path) in str(caught.value)


def test_a_published_series_is_fetched_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MILLSTREAM_MIRROR", tmp_path.as_uri())
    (tmp_path / "sunspots").mkdir()
    path = csv_file(tmp_path / "sunspots" / "monthly-sunspots.csv", count=2820)
    assert len(SunspotsDataset()) == 2256 - 24
    cached = tmp_path / "home" / ".cache" / "cyreal_sunspots" / path.name
    assert cached.read_bytes() == path.read_bytes()
    csv_file(cached, count=2819)
    with pytest.raises(DataError, match=f"2820 values, found 2819; delete {cached}"):
        len(SunspotsDataset())


PAGE = "<!doctype html>\n<html><body>Log in</body></html>\n"


def short(path: Path) -> None:
    csv_file(path, count=3649)


def page(path: Path) -> None:
    path.write_text(PAGE)


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (page, "line 2: expected a number in column 2, found '<html>"),
        (short, "expected 3650 values, found 3649"),
    ],
)
@pytest.mark.parametrize("is_own", [False, True])
def test_a_page_in_place_of_a_series_is_discarded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[[Path], None],
    reason: str,
    is_own: bool,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    mirrors = [tmp_path / "bad", tmp_path / "good"]
    monkeypatch.setenv("MILLSTREAM_MIRROR", mirrors[0].as_uri())
    name = "daily-min-temperatures.csv"
    for mirror in mirrors:
        (mirror / "daily-min-temperatures").mkdir(parents=True)
    serve(mirrors[0] / "daily-min-temperatures" / name)
    csv_file(mirrors[1] / "daily-min-temperatures" / name, count=3650)
    own = tmp_path / "own"
    folder = own if is_own else tmp_path / "home/.cache/cyreal_daily_min_temperatures"
    dataset = DailyMinTemperaturesDataset(cache_dir=own if is_own else None)
    with pytest.raises(DownloadError) as caught:
        len(dataset)
    assert f"/{name}: {reason}" in str(caught.value)
    assert [path.name for path in folder.iterdir()] == [f".{name}.lock"]
    addresses = " ".join(mirror.as_uri() for mirror in mirrors)
    monkeypatch.setenv("MILLSTREAM_MIRROR", addresses)
    assert len(dataset) == 3650 * 4 // 5 - 30


@pytest.mark.parametrize("is_own", [False, True])
def test_the_error_names_a_page_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".cache" / "cyreal_sunspots"
    folder.mkdir(parents=True)
    cached = folder / "monthly-sunspots.csv"
    cached.write_text(PAGE.replace("Log in", "Log in " * 10_000))
    with pytest.raises(DataError, match=f"; delete {cached} to have it") as caught:
        len(SunspotsDataset(cache_dir=folder if is_own else None))
    assert len(str(caught.value)) < 600
    assert cached.exists()


@pytest.mark.parametrize("kind", [SunspotsDataset, DailyMinTemperaturesDataset])
def test_published_series_have_two_hosts(kind: type[Any]) -> None:
    assert len({urlsplit(url).hostname for url in kind._remote.urls}) == 2


def test_an_endless_series_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    lines = file_server.in_chunks(b"Month,Sunspots\n" + b"1749-01,58.0\n" * 500_000)
    server.offer("/sunspots/monthly-sunspots.csv", lines)
    monkeypatch.setenv("MILLSTREAM_MIRROR", server.url)
    with pytest.raises(DownloadError, match="sends more than 282000 bytes"):
        len(SunspotsDataset(cache_dir=tmp_path))


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="context_length must be at least 1; found 0"):
        SunspotsDataset(context_length=0)
    with pytest.raises(ValueError, match="prediction_length"):
        DailyMinTemperaturesDataset(prediction_length=-1)
    with pytest.raises(ValueError, match="needs a val_fraction"):
        SunspotsDataset("val")
    with pytest.raises(TypeError):
        SunspotsDataset("train", True)  # type: ignore[misc]
