"""Disk sources of data sets give the samples of their arrays, with every delivery."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from conftest import TESTS
from idx_files import images_and_labels, write_idx
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CIFAR10Dataset,
    CIFAR10DiskSource,
    CIFAR100Dataset,
    DataError,
    DataLoader,
    EMNISTDataset,
    FashionMNISTDataset,
    KMNISTDataset,
    MNISTDataset,
    MNISTDiskSource,
    SunspotsDataset,
    concatenate,
    cyreal,
    make_sequence_disk_source,
    prepare_time_series_windows,
)
from millstream._core.errors import DownloadError
from millstream._datasets import download
from walks import iterated, jitted, same_walk, scanned

N = 150
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MILLSTREAM_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "_PAUSE", 0.01)
    return folder


def write_mnist(folder: Path, suffix: str = ".gz", split: str = "train") -> Path:
    images, labels = images_and_labels(N)
    write_idx(folder / f"{split}_images{suffix}", images)
    write_idx(folder / f"{split}_labels{suffix}", labels)
    return folder


def write_cifar10(folder: Path, form: str) -> Path:
    random = np.random.default_rng(0)
    for batch in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        planes = random.integers(0, 256, (7, 3072), np.uint8)
        labels = random.integers(0, 10, 7, np.uint8)
        name, content = f"cifar-10-batches-bin/{batch}.bin", b""
        if form == "pickled":
            name = f"cifar-10-batches-py/{batch}"
            content = pickle.dumps({"data": planes, "labels": labels.tolist()})
        else:
            content = np.concatenate([labels[:, None], planes], axis=1).tobytes()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_cifar100(folder: Path) -> Path:
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, (9, 3074), np.uint8)
    rows[:, 0], rows[:, 1] = random.integers(0, 20, 9), random.integers(0, 100, 9)
    (folder / "cifar-100-binary").mkdir()
    (folder / "cifar-100-binary/train.bin").write_bytes(rows.tobytes())
    return folder


def check(source: Any, dataset: Any) -> None:
    """Compares a disk source with the arrays in memory, with every delivery."""
    arrays = dataset.as_array_dict()
    assert len(source) == len(dataset)
    sample = source[-1]
    assert {k: (v.dtype, v.shape) for k, v in sample.items()} == {
        k: (v.dtype, v.shape[1:]) for k, v in arrays.items()
    }
    loader = DataLoader([source, BatchTransform(8)])
    memory = DataLoader([ArraySampleSource(arrays), BatchTransform(8)])
    state = loader.init_state(2)
    steps = memory.steps_per_epoch + 2
    expected = iterated(memory, state, steps)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(jitted(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)


@pytest.mark.parametrize("kind", [MNISTDataset, KMNISTDataset, FashionMNISTDataset])
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_data_sets_in_mnist_format(tmp_path: Path, kind: Any, suffix: str) -> None:
    write_mnist(tmp_path, suffix, "test")
    source = kind.make_disk_source(split="test", cache_dir=tmp_path)
    assert source[0]["image"].shape == (28, 28, 1)
    assert source[0]["label"].dtype == np.int32
    check(source, kind("test", tmp_path))
    assert (tmp_path / "unpacked").exists() == bool(suffix)


@pytest.mark.parametrize("is_set", [False, True])
def test_files_in_a_read_only_folder_are_unpacked_elsewhere(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, is_set: bool
) -> None:
    cache = home / ".cache/millstream"
    if is_set:
        cache = tmp_path / "elsewhere"
        monkeypatch.setenv("MILLSTREAM_CACHE", str(cache))
    own = write_mnist(tmp_path / "own")
    (own / "unpacked").write_text("in the way")
    source = MNISTDataset.make_disk_source(cache_dir=own)
    assert len(source) == N
    assert list(cache.iterdir())
    before = sorted(cache.iterdir())
    MNISTDataset.make_disk_source(cache_dir=own)
    assert sorted(cache.iterdir()) == before


def test_emnist_images_are_upright(tmp_path: Path) -> None:
    images, labels = images_and_labels(N)
    prefix = "emnist-letters-train"
    write_idx(tmp_path / f"{prefix}-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", labels)
    source = EMNISTDataset.make_disk_source(cache_dir=tmp_path, subset="letters")
    assert np.array_equal(source[5]["image"][..., 0], images[5].T)
    check(source, EMNISTDataset("letters", cache_dir=tmp_path))


@pytest.mark.parametrize("form", ["binary", "pickled"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10(tmp_path: Path, form: str, split: str) -> None:
    write_cifar10(tmp_path, form)
    source = CIFAR10Dataset.make_disk_source(split=split, cache_dir=tmp_path)
    check(source, CIFAR10Dataset(split, tmp_path))
    check(CIFAR10DiskSource(split, tmp_path), CIFAR10Dataset(split, tmp_path))


def test_cifar100(tmp_path: Path) -> None:
    write_cifar100(tmp_path)
    source = CIFAR100Dataset.make_disk_source(cache_dir=tmp_path)
    assert set(source[0]) == {"image", "label", "coarse_label"}
    check(source, CIFAR100Dataset("train", tmp_path))


def test_the_class_forms(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    source = MNISTDiskSource("train", tmp_path, "shuffle", 32)
    check(source, MNISTDataset("train", tmp_path))
    assert repr(source).startswith("MNISTDiskSource(dataset=MNISTDataset(split='train'")
    part, _ = source.split(100, 50)
    assert isinstance(part, MNISTDiskSource)
    assert len(part) == 100
    assert len(concatenate([source, source[:10]])) == N + 10


def test_prefetch_size_is_in_samples(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    for samples, batch, ahead in (
        (64, 128, 1),
        (64, 16, 4),
        (np.int8(65), 16, 5),
        (1, 1, 1),
    ):
        source = MNISTDiskSource("train", tmp_path, prefetch_size=samples)
        for head in (source, source[:140]):
            loader = DataLoader([head, BatchTransform(batch)])
            assert f", {ahead} batches ahead" in loader.explain()
        loader = DataLoader([source, BatchTransform(batch)], prefetch=7)
        assert ", 7 batches ahead" in loader.explain()
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="prefetch_size must be a whole number"):
            MNISTDiskSource("train", tmp_path, prefetch_size=wrong)


def test_wrong_arguments_fail_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'"):
        MNISTDataset.make_disk_source(split="val", cache_dir=tmp_path)
    with pytest.raises(ValueError, match="unknown ordering 'random'"):
        MNISTDataset.make_disk_source(ordering="random", cache_dir=tmp_path)
    with pytest.raises(DownloadError):
        MNISTDataset.make_disk_source(cache_dir=tmp_path)


def test_files_of_another_kind(tmp_path: Path) -> None:
    images, labels = images_and_labels(5)
    write_idx(tmp_path / "train_images", labels)
    write_idx(tmp_path / "train_labels", labels)
    with pytest.raises(
        DataError, match=r"train_images: expected images of uint8 in 3 dim.*found rows"
    ):
        MNISTDataset.make_disk_source(cache_dir=tmp_path)
    write_idx(tmp_path / "train_images", images[:4])
    with pytest.raises(DataError, match=r"train_labels: offset 8: .*4, found 5"):
        MNISTDataset.make_disk_source(cache_dir=tmp_path)
    content = write_idx(tmp_path / "train_images", images).read_bytes()
    (tmp_path / "train_images").write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"train_images: .*found 3919 bytes") as caught:
        MNISTDataset.make_disk_source(cache_dir=tmp_path)
    assert "to have it fetched again" in caught.value.__notes__[0]


def test_cyreals_example_of_streaming_from_disk(home: Path) -> None:
    write_mnist(home / ".cache/jax_mnist")
    scope: dict[str, Any] = {}
    code = (TESTS / "seeds" / "000_disk_stream.txt").read_text()
    exec(code.replace("from cyreal import", "from millstream.cyreal import"), scope)
    loader, state = scope["loader"], scope["state"]
    assert scope["batch"]["image"].shape == (128, 28, 28, 1)
    assert list((home / ".cache/millstream").iterdir())
    memory = DataLoader(
        [
            ArraySampleSource(MNISTDataset().as_array_dict()),
            BatchTransform(128),
            cyreal.DevicePutTransform(),
        ]
    )
    expected = iterated(memory, state, 4)
    same_walk(iterated(loader, state, 4), expected)
    same_walk(jitted(loader, state, 4), expected)
    same_walk(scanned(loader, state, 4), expected)
    states = jax.vmap(loader.init_state)(jax.numpy.arange(2))
    batch, _, _ = jax.jit(jax.vmap(loader.next_batch))(states)
    assert batch["image"].shape == (2, 128, 28, 28, 1)


@pytest.mark.skipif(not DEBIAN.exists(), reason="dataset-fashion-mnist is missing")
def test_all_of_fashion_mnist(tmp_path: Path) -> None:
    source = FashionMNISTDataset.make_disk_source(prefetch_size=1024)
    loader = DataLoader([source, BatchTransform(128)])

    def body(carry: Any, batch: Any, mask: Any) -> tuple[Any, None]:
        images = batch["image"].astype(np.uint32).sum()
        return (carry[0] + images, carry[1] + batch["label"].sum()), None

    _, (images, labels), _ = loader.scan_epoch(
        loader.init_state(0), (np.uint32(0), np.int32(0)), body
    )
    arrays = FashionMNISTDataset().as_array_dict()
    assert int(images) == int(arrays["image"].sum(dtype=np.uint64))
    assert int(labels) == int(arrays["label"].sum())


def test_time_series(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("t,v\n" + "".join(f"{i},{i * 0.5}\n" for i in range(200)))
    options = {"context_length": 6, "prediction_length": 2, "data_path": path}
    source = SunspotsDataset.make_disk_source(split="test", **options)
    check(source, SunspotsDataset("test", **options))
    series = np.lib.format.open_memmap(tmp_path / "s.npy", "w+", np.float32, (50, 2))
    series[:] = np.arange(100).reshape(50, 2)
    contexts, targets = prepare_time_series_windows(
        series, "train", context_length=5, prediction_length=1
    )
    windows = make_sequence_disk_source(contexts=contexts, targets=targets)
    assert np.array_equal(windows[3]["context"], series[3:8])
    assert np.array_equal(windows[3]["target"], series[8:9])
    with pytest.raises(ValueError, match="prefetch_size must be at least 1"):
        make_sequence_disk_source(contexts=contexts, targets=targets, prefetch_size=0)
