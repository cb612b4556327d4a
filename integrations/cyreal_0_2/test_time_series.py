"""Time series, compared with cyreal 0.2.1."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import cyreal.datasets
import cyreal.loader
import cyreal.sources
import cyreal.transforms
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import check_same, check_walks
from cyreal.datasets import time_utils as theirs
from millstream.cyreal import v02
from millstream.cyreal.v02.datasets import time_utils as ours

SPLITS = ("train", "val", "test")
SHAPES = [(20,), (20, 3), (2, 20, 3)]


def series(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("shape", [(20,), (37,), (20, 3), (2, 20, 3)])
def test_splits(shape: tuple[int, ...]) -> None:
    array, compared = series(shape), 0
    fractions = (0.1, 0.25, 0.5, 0.6, 0.75, 0.8)
    for split, train, val, context in itertools.product(
        SPLITS, fractions, (0.0, 0.1, 0.2), (0, 1, 5)
    ):
        steps = array.shape[1 if array.ndim > 2 else 0]
        exact = [round(steps * x * 100) // 100 for x in (train, train + val)]
        if exact != [int(steps * train), int(steps * (train + val))]:
            continue  # Cyreal rounds 0.7999999 of a step down
        if train + val >= 1 or (split == "val" and not val):
            for module in (ours, theirs):
                with pytest.raises(ValueError, match="val_fraction"):
                    module.select_split(array, split, train, context, val)
            continue
        check_same(
            ours.select_split(array, split, train, context, val),
            theirs.select_split(array, split, train, context, val),
        )
        compared += 1
    assert compared > 60


@pytest.mark.parametrize("shape", SHAPES)
def test_windows(shape: tuple[int, ...]) -> None:
    array = series(shape)
    for size, stride, offset in itertools.product((1, 3, 20), (1, 2, 7), (0, 1, 4)):
        if size + offset > 20:
            for module in (ours, theirs):
                with pytest.raises(ValueError, match=r"short|need"):
                    module.sliding_window_many(array, size, stride, offset)
            continue
        check_same(
            ours.sliding_window_many(array, size, stride, offset),
            theirs.sliding_window_many(array, size, stride, offset),
        )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("split", SPLITS)
def test_contexts_and_targets(shape: tuple[int, ...], split: str) -> None:
    arguments = (series(shape), split, 3, 2, 0.5, 0.25)
    contexts, targets = ours.prepare_time_series_windows(*arguments)
    their_contexts, their_targets = theirs.prepare_time_series_windows(*arguments)
    check_same(targets, their_targets)
    if len(shape) == 2:  # Cyreal does not cut the contexts to the number of targets
        assert len(their_contexts) > len(targets)
        their_contexts = their_contexts[: len(targets)]
    check_same(contexts, their_contexts)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("stride", [1, 2])
def test_two_sequences(split: str, stride: int) -> None:
    """They agree for several series whose targets follow their inputs."""
    inputs = series((2, 40, 3))
    arguments = (inputs, -inputs[..., :1], split, 4, 2, 0.5, 0.25, stride, 4)
    check_same(
        ours.prepare_seq_to_seq_windows(*arguments),
        theirs.prepare_seq_to_seq_windows(*arguments),
    )


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_two_sequences_of_the_train_split(offset: int) -> None:
    inputs = series((2, 40, 3))
    arguments = (inputs, inputs, "train", 4, 6, 0.5, 0.0, 1, offset)
    check_same(
        ours.prepare_seq_to_seq_windows(*arguments),
        theirs.prepare_seq_to_seq_windows(*arguments),
    )


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "series.csv"
    rows = "".join(f'"day {i}",{(i * 7 % 31) / 4}\n' for i in range(60))
    path.write_text(f'"Date","Value"\n{rows}')
    return path


def test_a_column(csv: Path) -> None:
    check_same(
        ours.load_value_column(csv, skip_header=1, value_column=1),
        theirs.load_value_column(csv, skip_header=1, value_column=1),
    )


OPTIONS: dict[str, Any] = {
    "context_length": 5,
    "prediction_length": 2,
    "train_fraction": 0.5,
    "val_fraction": 0.25,
}


@pytest.mark.parametrize("name", ["DailyMinTemperaturesDataset", "SunspotsDataset"])
@pytest.mark.parametrize("split", SPLITS)
def test_the_data_sets(csv: Path, name: str, split: str) -> None:
    mine, other = getattr(v02, name), getattr(cyreal.datasets, name)
    options = {**OPTIONS, "split": split, "data_path": str(csv)}
    check_same(mine(**options).as_array_dict(), other(**options).as_array_dict())


def test_a_disk_source(csv: Path) -> None:
    options = {**OPTIONS, "ordering": "sequential", "data_path": str(csv)}
    source = cyreal.datasets.SunspotsDataset.make_disk_source(**options)
    batch = cyreal.transforms.BatchTransform(4)
    expected = cyreal.loader.DataLoader([source, batch])
    own = v02.SunspotsDataset.make_disk_source(**options)
    check_walks(v02.DataLoader([own, v02.BatchTransform(4)]), expected, 3)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 2), (5, 3, 2, 2)])
@pytest.mark.parametrize("mode", ["batched", "packed"])
def test_batches_of_sequences(shape: tuple[int, ...], mode: str) -> None:
    data = {"context": jnp.asarray(series(shape)), "target": jnp.arange(5)}

    def build(source: Any, transforms: Any, loader: Any) -> Any:
        return loader(
            [
                source(data, "sequential"),
                transforms.BatchTransform(2, pad_last_batch=True),
                transforms.TimeSeriesBatchTransform(mode=mode),
            ]
        )

    found = build(v02.ArraySource, v02.transforms, v02.DataLoader)
    expected = build(
        cyreal.sources.ArraySource, cyreal.transforms, cyreal.loader.DataLoader
    )
    check_walks(found, expected, 4)
