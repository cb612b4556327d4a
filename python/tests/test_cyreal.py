"""The interface of Cyreal 0.2.x: names, signatures and defaults."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from millstream import cereal, cyreal
from millstream._datasets import download
from millstream.cyreal import v02
from millstream.cyreal.v02.datasets import (
    EMNIST_URLS,
    FASHION_MNIST_URLS,
    KMNIST_URLS,
    MNIST_URLS,
    time_utils,
)
from millstream.cyreal.v02.loader import DataLoader
from millstream.cyreal.v02.sources import ArraySource, DiskSource
from millstream.cyreal.v02.transforms import BatchTransform, MapTransform

N = 5
DATA = {"value": np.arange(N, dtype=np.int32)}

# Cyreal's module, the name, and its arguments without annotations.
SIGNATURES = """
sources ArraySource (data, ordering='shuffle')
sources DiskSource (length, sample_fn, sample_spec=None, ordering='shuffle', \
prefetch_size=64)
sources GymnaxSource (env, env_params, policy_step_fn, policy_state_template=None, \
steps_per_epoch=1024)
transforms BatchTransform (batch_size, drop_last=False, pad_last_batch=False, \
element_spec_override=None)
transforms BufferTransform (capacity, prefill, sample_size=1, mode='sequential', \
write_mode='fifo')
transforms DevicePutTransform (device=None)
transforms FlattenTransform (data_key, start_index=1)
transforms HostCallbackTransform (fn, element_spec_override=None)
transforms MapTransform (fn, element_spec_override=None)
transforms RenameTransform (renames)
transforms TimeSeriesBatchTransform (sequence_key='context', mode='batched', \
sequence_start_key='sequence_start')
rl set_loader_policy_state (state, policy_state, *, new_episode=None)
rl set_source_policy_state (state, policy_state, *, new_episode=None)
datasets.time_utils load_value_column (path, *, skip_header, value_column)
datasets.time_utils load_time_series_from_csv (*, cache_dir, dataset_name, filename, \
url, data_path, skip_header, value_column)
datasets.time_utils select_split (array, split, train_fraction, context_length, \
val_fraction=0.0)
datasets.time_utils sliding_window_many (array, window_size, stride=1, offset=0)
datasets.time_utils prepare_time_series_windows (series, split, context_length, \
prediction_length, train_fraction, val_fraction=0.0)
datasets.time_utils prepare_seq_to_seq_windows (input_sequence, target_sequence, \
split, input_window_len, target_window_len, train_fraction=0.8, val_fraction=0.0, \
sliding_window_stride=1, target_offset=0)
datasets.time_utils make_sequence_disk_source (*, contexts, targets, ordering, \
prefetch_size)
""".strip().splitlines()
NAMES_OF_000 = [
    "ArraySampleSource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "DataLoader",
    "DatasetProtocol",
    "DevicePutTransform",
    "DiskSampleSource",
    "FlattenTransform",
    "GymnaxSource",
    "HostCallbackTransform",
    "LoaderState",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "Source",
]
NAMES_OF_001 = [
    "ArraySampleSource",
    "BatchTransform",
    "CIFAR10Dataset",
    "DataLoader",
    "DatasetProtocol",
    "DevicePutTransform",
    "DiskSampleSource",
    "FlattenImageTransform",
    "GymnaxSource",
    "HostCallbackTransform",
    "LoaderState",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "Source",
    "dataset_to_jax",
]


def without_annotations(function: Any) -> str:
    """Returns the arguments of a function that Cyreal has too, as text."""
    empty = inspect.Parameter.empty
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=empty)
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


@pytest.mark.parametrize("line", SIGNATURES)
def test_signatures(line: str) -> None:
    module, name, expected = line.split(" ", 2)
    found = without_annotations(
        getattr(import_module(f"millstream.cyreal.v02.{module}"), name)
    )
    # Millstream's own arguments follow those of Cyreal, and are keyword-only.
    assert found == expected or found.startswith(f"{expected[:-1]}, *, "), found


@pytest.mark.parametrize("name", NAMES_OF_000)
def test_names_of_the_first_releases(name: str) -> None:
    assert name in cyreal.__all__
    assert hasattr(cyreal, name)


@pytest.mark.parametrize("name", NAMES_OF_001)
def test_names_of_cereal(name: str) -> None:
    assert name in cereal.__all__
    assert hasattr(cereal, name)


@pytest.mark.parametrize("module", ["sources", "transforms", "loader", "datasets"])
def test_the_package_exports_the_names_of_its_modules(module: str) -> None:
    inner = import_module(f"millstream.cyreal.v02.{module}")
    for name in inner.__all__:
        if not name.endswith("_URLS"):
            assert getattr(v02, name) is getattr(inner, name)
            assert name in v02.__all__


def values(loader: Any, steps: int) -> list[list[int]]:
    state = loader.init_state(jax.random.PRNGKey(0))
    return [b["value"].tolist() for b, _ in loader.iterate(state, steps=steps)]


def batches_of(stage: Any, steps: int = 5) -> list[list[int]]:
    return values(DataLoader([ArraySource(DATA, "sequential"), stage]), steps)


def test_the_last_batch_wraps_by_default() -> None:
    assert batches_of(BatchTransform(2)) == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
    padded = BatchTransform(2, pad_last_batch=True)
    assert batches_of(padded, 4) == [[0, 1], [2, 3], [4, 0], [0, 1]]
    assert batches_of(BatchTransform(2, drop_last=True), 3) == [[0, 1], [2, 3], [0, 1]]
    assert batches_of(BatchTransform(2, True, True), 3) == [[0, 1], [2, 3], [0, 1]]
    assert batches_of(cyreal.BatchTransform(2), 3) == [[0, 1], [2, 3], [4, 0]]


@pytest.mark.parametrize("package", [v02, cyreal, cereal])
def test_the_spec_of_a_batch_describes_one_sample(package: Any) -> None:
    source = ArraySource(DATA, "sequential")
    right, wrong = source.element_spec(), jax.ShapeDtypeStruct((2,), np.int32)
    stage = package.BatchTransform(2, element_spec_override=right)
    assert DataLoader([source, stage]).element_spec()["value"].shape == (2,)
    stage = package.BatchTransform(2, element_spec_override={"value": wrong})
    with pytest.raises(ValueError, match=r"expected int32\[2, 2\]"):
        DataLoader([source, stage])


def test_scan_epoch_takes_unroll_in_fourth_place() -> None:
    loader = DataLoader([ArraySource(DATA), BatchTransform(2)])
    state = loader.init_state(jax.random.PRNGKey(1))

    def body(total: Any, batch: Any, mask: Any) -> Any:
        return total + batch["value"].sum(), batch["value"]

    for unroll in (False, True, 2):
        end, total, outputs = loader.scan_epoch(state, jnp.int32(0), body, unroll)
        assert (end.epoch, outputs.shape) == (1, (3, 2))
        assert int(total) == int(outputs.sum())


def test_iterate_yields_an_epoch_of_batches_from_any_state() -> None:
    loader = DataLoader([ArraySource(DATA, "sequential"), BatchTransform(2)])
    _, state, _ = loader.next(loader.init_state(jax.random.PRNGKey(0)))
    assert int(state.inner_state.position_in_epoch) == 1
    iterator = loader.iterate(state)
    found = [batch["value"].tolist() for batch, _ in iterator]
    assert found == [[2, 3], [4, 0], [1, 2]]
    assert int(iterator.state.inner_state.inner_state.epoch) == 1


def test_stages_compose_by_addition_and_by_calls() -> None:
    def double(batch: Any, mask: Any) -> Any:
        return {"value": batch["value"] * 2}

    def sample(index: int) -> Any:
        return {"value": np.int32(index)}

    source = DiskSource(N, sample, ordering="sequential", prefetch_size=2)
    added = source + BatchTransform(2) + MapTransform(double)
    called = MapTransform(double)(BatchTransform(2)(source))
    for pipeline in (added, called):
        assert values(DataLoader(pipeline), 3) == [[0, 2], [4, 6], [8, 0]]
        state = pipeline.init_state(jax.random.PRNGKey(0))
        batch, mask, state = pipeline.next(state)
        assert batch["value"].tolist() == [0, 2]
        assert mask.tolist() == [True, True]


class Counter(v02.Source[Any]):
    """A source of a user. Its attribute must not collide with a property."""

    def __init__(self) -> None:
        self.steps_per_epoch = 3

    def init_state(self, key: Any) -> Any:
        return jnp.int32(0)

    def next(self, state: Any) -> Any:
        return {"value": state}, jnp.bool_(True), state + 1

    def element_spec(self) -> Any:
        return {"value": jax.ShapeDtypeStruct((), jnp.int32)}


def test_a_source_of_a_user() -> None:
    loader = DataLoader([Counter(), BatchTransform(2)])
    assert values(loader, 3) == [[0, 1], [2, 3], [4, 5]]


def test_where_the_files_of_data_sets_are() -> None:
    roles = {"train_images", "train_labels", "test_images", "test_labels"}
    for urls in (MNIST_URLS, FASHION_MNIST_URLS, KMNIST_URLS):
        assert set(urls) == roles
        assert urls["test_labels"].endswith("/t10k-labels-idx1-ubyte.gz")
        assert urls["train_images"].startswith("http")
    assert set(EMNIST_URLS) == {"balanced", "byclass", "bymerge", "digits", "letters"}
    found = EMNIST_URLS["digits"]["test_images"]
    assert found == "gzip/emnist-digits-test-images-idx3-ubyte.gz"
    assert all(set(members) == roles for members in EMNIST_URLS.values())


@pytest.fixture
def csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "_PAUSE", 0.01)
    path = tmp_path / ".cache" / "cyreal_wind" / "wind.csv"
    path.parent.mkdir(parents=True)
    path.write_text("a comment\nday,north,south\n1,2.5,3\n2,4.5,6\n\n3,6.5,9\n")
    return path


def test_a_column_of_a_csv_file(csv: Path) -> None:
    load = time_utils.load_value_column
    column = load(csv, skip_header=2, value_column=2)
    assert column.dtype == np.float32
    assert column.tolist() == [3, 6, 9]
    assert load(csv, skip_header=3, value_column=1).tolist() == [4.5, 6.5]
    with pytest.raises(ms.DataError, match="line 2: expected a number in column 2"):
        load(csv, skip_header=1, value_column=1)
    with pytest.raises(ms.DataError, match="line 3: expected a number in column 9"):
        load(csv, skip_header=2, value_column=8)
    with pytest.raises(ms.DataError, match="expected values, found no values"):
        load(csv, skip_header=20, value_column=1)
    with pytest.raises(ValueError, match="skip_header must be a whole number of at"):
        load(csv, skip_header=-1, value_column=1)


def test_a_series_from_its_folder_or_a_path(csv: Path, tmp_path: Path) -> None:
    def load(**more: Any) -> Any:
        options: dict[str, Any] = {"cache_dir": None, "data_path": None, **more}
        return time_utils.load_time_series_from_csv(
            dataset_name="wind",
            filename="wind.csv",
            url="http://127.0.0.1:9/wind.csv",
            skip_header=2,
            value_column=1,
            **options,
        ).tolist()

    assert load() == load(data_path=str(csv)) == [2.5, 4.5, 6.5]
    assert load(cache_dir=str(csv.parent)) == [2.5, 4.5, 6.5]
    with pytest.raises(FileNotFoundError):
        load(data_path=str(tmp_path / "none.csv"))
    with pytest.raises(OSError, match=r"could not fetch wind\.csv"):
        load(cache_dir=str(tmp_path / "empty"))


def test_windows_have_the_layout_of_cyreal() -> None:
    prepare = time_utils.prepare_time_series_windows
    series = np.arange(60.0).reshape(20, 3)
    contexts, targets = prepare(series, "train", 4, 2, 0.5)
    assert (contexts.shape, targets.shape) == ((5, 3, 4), (5, 3, 2))
    assert np.array_equal(contexts[1], series[1:5].T)
    assert np.array_equal(targets[1], series[5:7].T)
    several = np.stack([series, -series])
    contexts, targets = prepare(several, "test", 4, 2, 0.5)
    assert (contexts.shape, targets.shape) == ((2, 9, 3, 4), (2, 9, 3, 2))
    contexts, targets = prepare(series[:, 0], "train", 4, 2, 0.5)
    assert (contexts.shape, targets.shape) == ((5, 4), (5, 2))


def test_sequence_sources_are_float32() -> None:
    make = time_utils.make_sequence_disk_source
    windows = np.arange(12).reshape(3, 4)
    source = make(
        contexts=windows, targets=windows, ordering="sequential", prefetch_size=2
    )
    assert source[1]["context"].dtype == np.float32
    assert source[1]["context"].tolist() == [4, 5, 6, 7]
    with pytest.raises(ValueError, match=r"targets must have the shape \(windows, st"):
        make(contexts=windows, targets=windows[0], ordering="shuffle", prefetch_size=2)
