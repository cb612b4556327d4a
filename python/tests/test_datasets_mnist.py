"""Data sets in MNIST's format, from small files and Debian's Fashion-MNIST package."""

import gzip
import hashlib
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import file_server
import numpy as np
import pytest
from file_server import FileServer
from idx_files import idx_bytes, images_and_labels, write_idx
from millstream import (
    EMNISTDataset,
    FashionMNISTDataset,
    KMNISTDataset,
    MNISTDataset,
)
from millstream._core.errors import DataError, DownloadError
from millstream._datasets import download
from millstream._datasets import emnist as emnist_module
from millstream._datasets.download import RemoteFile
from millstream._sources.materialize import dataset_to_jax

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
IMAGES, LABELS = images_and_labels(12)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MILLSTREAM_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "_PAUSE", 0.01)
    return folder


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with file_server.serving() as files:
        monkeypatch.setenv("MILLSTREAM_MIRROR", files.url)
        yield files


def write_pair(folder: Path, images_name: str, labels_name: str) -> None:
    write_idx(folder / images_name, IMAGES)
    write_idx(folder / labels_name, LABELS)


@pytest.mark.parametrize("kind", [MNISTDataset, KMNISTDataset])
@pytest.mark.parametrize(
    ("split", "images_name", "labels_name"),
    [
        ("train", "train_images.gz", "train_labels.gz"),
        ("test", "test_images.gz", "test_labels.gz"),
        ("train", "train_images", "train_labels.gz"),
        ("train", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        ("test", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
        ("test", "t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"),
    ],
)
def test_files_in_the_cache_are_found(
    tmp_path: Path,
    kind: type[MNISTDataset],
    split: str,
    images_name: str,
    labels_name: str,
) -> None:
    write_pair(tmp_path, images_name, labels_name)
    dataset = kind(split=split, cache_dir=tmp_path)
    assert dataset.files() == (tmp_path / images_name, tmp_path / labels_name)
    assert len(dataset) == 12
    arrays = dataset.as_array_dict()
    np.testing.assert_array_equal(arrays["image"][..., 0], IMAGES)
    np.testing.assert_array_equal(arrays["label"], LABELS)
    assert arrays["image"].shape == (12, 28, 28, 1)
    assert (arrays["image"].dtype, arrays["label"].dtype) == (np.uint8, np.int32)


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        (MNISTDataset, "jax_mnist"),
        (FashionMNISTDataset, "fashion_mnist"),
        (KMNISTDataset, "kmnist"),
    ],
)
def test_the_default_cache(home: Path, kind: type[MNISTDataset], folder: str) -> None:
    write_pair(home / ".cache" / folder, "train_images.gz", "train_labels.gz")
    assert len(kind()) == 12


def test_samples(tmp_path: Path) -> None:
    write_pair(tmp_path, "train_images.gz", "train_labels.gz")
    dataset = MNISTDataset(cache_dir=str(tmp_path))
    for index in (0, 11, -1, -12, np.int64(3)):
        sample = dataset[index]
        np.testing.assert_array_equal(sample["image"][..., 0], IMAGES[index])
        assert sample["label"] == LABELS[index]
        assert sample["label"].dtype == np.int32
    for index in (12, -13):
        with pytest.raises(
            IndexError, match=f"index {index} is out of range for 12 samples"
        ):
            dataset[index]
    with pytest.raises(TypeError):
        dataset["image"]  # type: ignore[index]
    assert len(list(dataset)) == 12


def test_a_description_is_frozen_small_and_comparable(tmp_path: Path) -> None:
    write_pair(tmp_path, "train_images.gz", "train_labels.gz")
    dataset = MNISTDataset(cache_dir=tmp_path)
    assert len(dataset) == 12
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy == dataset
    assert hash(copy) == hash(dataset)
    assert len(copy) == 12
    assert len(pickle.dumps(dataset)) < 1000
    assert repr(MNISTDataset("test")) == "MNISTDataset(split='test', cache_dir=None)"
    with pytest.raises(AttributeError):
        dataset.split = "test"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        dataset.as_array_dict()["image"][0] = 0


def test_as_jax_arrays(tmp_path: Path) -> None:
    write_pair(tmp_path, "train_images.gz", "train_labels.gz")
    arrays = dataset_to_jax(MNISTDataset(cache_dir=tmp_path))
    np.testing.assert_array_equal(arrays["image"][..., 0], IMAGES)
    assert arrays["label"].dtype == np.int32


def test_wrong_arguments_fail_at_once() -> None:
    with pytest.raises(ValueError, match="split must be one of 'train', 'test'; found"):
        MNISTDataset(split="valid")
    with pytest.raises(ValueError, match=r"subset must be one of .*; found 'all'"):
        EMNISTDataset(subset="all")


def test_counts_that_differ_are_refused(tmp_path: Path) -> None:
    write_idx(tmp_path / "train_images.gz", IMAGES)
    write_idx(tmp_path / "train_labels.gz", LABELS[:-1])
    with pytest.raises(DataError, match=r"train_labels.* expected .*12, found 11"):
        len(MNISTDataset(cache_dir=tmp_path))


def test_exchanged_images_and_labels_are_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, "train_labels.gz", "train_images.gz")
    with pytest.raises(
        DataError, match=r"train_images.*uint8 in 3 dim.*found rows of uint8\[\]"
    ):
        len(MNISTDataset(cache_dir=tmp_path))


def test_a_damaged_file_in_the_users_folder_is_left(tmp_path: Path) -> None:
    write_pair(tmp_path, "train_images.gz", "train_labels.gz")
    path = tmp_path / "train_images.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(
        DataError, match="expected more deflated data, found the end"
    ) as caught:
        len(MNISTDataset(cache_dir=tmp_path))
    assert caught.value.__notes__ == [f"Delete {path} to have it fetched again."]


def offered(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, kind: type[MNISTDataset]
) -> None:
    """Makes ``server`` offer small files under the names of the real ones."""
    files = {}
    for role, array in (("train_images", IMAGES), ("train_labels", LABELS)):
        content = gzip.compress(idx_bytes(array))
        name = kind._remote[role].name
        folder = kind._remote[role].folder
        server.offer(f"/{folder}/{name}", file_server.whole(content))
        files[role] = RemoteFile(
            name,
            (),
            folder=folder,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
    monkeypatch.setattr(kind, "_remote", files)


@pytest.mark.parametrize("kind", [MNISTDataset, KMNISTDataset])
def test_missing_files_are_fetched(
    server: FileServer,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    kind: type[MNISTDataset],
) -> None:
    offered(server, monkeypatch, kind)
    images, labels = kind().files()
    assert (images.name, labels.name) == ("train_images.gz", "train_labels.gz")
    assert images.parent == home / ".cache" / kind._cache_name
    np.testing.assert_array_equal(kind().as_array_dict()["label"], LABELS)
    assert len(server.requests) == 2


def test_a_damaged_file_in_the_default_cache_is_replaced(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    offered(server, monkeypatch, MNISTDataset)
    path = home / ".cache" / "jax_mnist" / "train_images.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x1f\x8bcut off long ago")
    np.testing.assert_array_equal(MNISTDataset()[3]["image"][..., 0], IMAGES[3])
    assert len(server.requests) == 2


def test_a_damaged_file_that_cannot_be_replaced(home: Path) -> None:
    write_pair(home / ".cache" / "jax_mnist", "train_images.gz", "train_labels.gz")
    path = home / ".cache" / "jax_mnist" / "train_images.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(
        DataError, match=r"found the end.*not replaced: could not fetch"
    ):
        len(MNISTDataset())


@pytest.mark.parametrize("kind", [MNISTDataset, FashionMNISTDataset, KMNISTDataset])
def test_mirrors_are_other_hosts(kind: type[MNISTDataset]) -> None:
    for file in kind._remote.values():
        assert len({urlsplit(url).hostname for url in file.urls}) == 2


def test_offline_errors_have_instructions(home: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        len(MNISTDataset("test"))
    for part in (
        "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        str(home / ".cache/jax_mnist/test_images.gz"),
    ):
        assert part in str(caught.value)


EMNIST_FILES = {
    f"gzip/emnist-{subset}-train-{kind}-ubyte.gz": (subset, kind)
    for subset in ("letters", "digits")
    for kind in ("images-idx3", "labels-idx1")
}


def emnist_archive(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, (subset, kind) in EMNIST_FILES.items():
            images, labels = images_and_labels(5, seed=len(subset))
            array = images if kind == "images-idx3" else labels
            archive.writestr(name, gzip.compress(idx_bytes(array)))
    return path


def test_emnist_images_from_the_archive_are_upright(tmp_path: Path) -> None:
    emnist_archive(tmp_path / "gzip.zip")
    for subset in ("letters", "digits"):
        images, labels = images_and_labels(5, seed=len(subset))
        arrays = EMNISTDataset(subset, cache_dir=tmp_path).as_array_dict()
        np.testing.assert_array_equal(arrays["image"][..., 0], images.swapaxes(1, 2))
        np.testing.assert_array_equal(arrays["label"], labels)
        assert arrays["image"].flags.c_contiguous
    assert len(EMNISTDataset(subset="digits", cache_dir=tmp_path)) == 5
    with pytest.raises(DataError, match=r"emnist-digits-test-images-idx3-ubyte\.gz"):
        len(EMNISTDataset("digits", "test", cache_dir=tmp_path))


def test_emnist_files_of_cyreal_are_found(home: Path) -> None:
    folder = home / ".cache" / "emnist" / "balanced"
    write_pair(folder, "train_images.gz", "train_labels.gz")
    assert len(EMNISTDataset()) == 12


def test_the_emnist_archive_is_fetched_once_for_all_subsets(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: Path
) -> None:
    content = emnist_archive(tmp_path / "gzip.zip").read_bytes()
    server.offer("/emnist/gzip.zip", file_server.whole(content))
    file = RemoteFile(
        "gzip.zip", (), folder="emnist", sha256=hashlib.sha256(content).hexdigest()
    )
    monkeypatch.setattr(emnist_module, "_ARCHIVE", file)
    assert len(EMNISTDataset("letters")) == len(EMNISTDataset("digits")) == 5
    assert len(server.requests) == 1
    assert (home / ".cache" / "emnist" / "gzip.zip").exists()


@pytest.mark.skipif(not DEBIAN.exists(), reason="dataset-fashion-mnist not installed")
@pytest.mark.parametrize(("split", "count"), [("train", 60_000), ("test", 10_000)])
def test_the_real_fashion_mnist(split: str, count: int) -> None:
    dataset = FashionMNISTDataset(split)
    assert all(path.parent == DEBIAN for path in dataset.files())
    arrays = dataset.as_array_dict()
    assert arrays["image"].shape == (count, 28, 28, 1)
    assert np.bincount(arrays["label"]).tolist() == [count // 10] * 10
    name = {"train": "train", "test": "t10k"}[split]
    content = gzip.decompress((DEBIAN / f"{name}-images-idx3-ubyte.gz").read_bytes())
    assert content[16:] == arrays["image"].tobytes()
    if split == "train":
        assert arrays["label"][:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
        assert round(float(arrays["image"].mean()) / 255, 4) == 0.2860


@pytest.mark.skipif(not DEBIAN.exists(), reason="dataset-fashion-mnist not installed")
def test_cache_dir_comes_before_the_system_folder(tmp_path: Path) -> None:
    write_pair(tmp_path, "train_images.gz", "train_labels.gz")
    assert len(FashionMNISTDataset(cache_dir=tmp_path)) == 12
    assert len(FashionMNISTDataset("test", cache_dir=tmp_path)) == 10_000
