"""CIFAR-10 and CIFAR-100 from both kinds of archives."""

import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import file_server
import numpy as np
import pytest
from file_server import FileServer
from millstream import CIFAR10Dataset, CIFAR100Dataset
from millstream._core.errors import DataError, DownloadError
from millstream._datasets import download
from millstream._datasets.download import RemoteFile, fetch
from numpy.typing import NDArray

PLAIN = np.zeros((2, 3072), np.uint8)
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MILLSTREAM_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setattr(download, "_PAUSE", 0.01)
    return tmp_path / "home"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    with file_server.serving() as files:
        monkeypatch.setenv("MILLSTREAM_MIRROR", files.url)
        yield files


def batch(seed: int, count: int = 3) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return images in height, width, channel order, fine and coarse labels."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 32, 32, 3), np.uint8)
    return images, random.integers(0, 10, count), random.integers(0, 20, count)


def planes(images: NDArray[Any]) -> NDArray[np.uint8]:
    return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def binary10(seed: int) -> bytes:
    images, labels, _ = batch(seed)
    columns = [labels[:, None].astype(np.uint8), planes(images)]
    return np.concatenate(columns, axis=1).tobytes()


def pickled10(seed: int) -> bytes:
    images, labels, _ = batch(seed)
    return pickle.dumps({"data": planes(images), "labels": labels.tolist()})


def binary100(seed: int) -> bytes:
    images, fine, coarse = batch(seed)
    labels = np.stack([coarse, fine], axis=1).astype(np.uint8)
    return np.concatenate([labels, planes(images)], axis=1).tobytes()


def pickled100(seed: int) -> bytes:
    images, fine, coarse = batch(seed)
    return pickle.dumps(
        {
            b"data": planes(images),
            b"fine_labels": fine.tolist(),
            b"coarse_labels": coarse.tolist(),
        },
        protocol=2,
    )


def cifar10_files(suffix: str) -> dict[str, bytes]:
    make = binary10 if suffix else pickled10
    names = [*TRAIN, "test_batch"]
    return {f"{name}{suffix}": make(seed) for seed, name in enumerate(names)}


def write_all(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def tar(path: Path, folder: str, files: dict[str, bytes]) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path.read_bytes()


def check10(root: Path | None) -> None:
    train = CIFAR10Dataset(cache_dir=root)
    assert len(train) == 15
    expected = [batch(seed) for seed in range(5)]
    arrays = train.as_array_dict()
    np.testing.assert_array_equal(
        arrays["image"], np.concatenate([images for images, _, _ in expected])
    )
    np.testing.assert_array_equal(
        arrays["label"], np.concatenate([labels for _, labels, _ in expected])
    )
    assert (arrays["image"].dtype, arrays["label"].dtype) == (np.uint8, np.int32)
    test = CIFAR10Dataset("test", cache_dir=root)
    np.testing.assert_array_equal(test[2]["image"], batch(5)[0][2])
    assert test[-1]["label"] == batch(5)[1][-1]


@pytest.mark.parametrize(
    ("folder", "suffix"),
    [
        ("cifar-10-batches-bin", ".bin"),
        ("cifar-10-batches-py", ""),
        ("", ".bin"),
        ("", ""),
    ],
)
def test_cifar10_from_unpacked_files(tmp_path: Path, folder: str, suffix: str) -> None:
    write_all(tmp_path / folder, cifar10_files(suffix))
    check10(tmp_path)


@pytest.mark.parametrize(
    ("archive", "folder", "suffix"),
    [
        ("cifar-10-binary.tar.gz", "cifar-10-batches-bin", ".bin"),
        ("cifar-10-python.tar.gz", "cifar-10-batches-py", ""),
    ],
)
def test_cifar10_from_an_archive(
    tmp_path: Path, archive: str, folder: str, suffix: str
) -> None:
    tar(tmp_path / archive, folder, cifar10_files(suffix))
    check10(tmp_path)
    assert (tmp_path / folder).is_dir()


def test_mirrors_are_other_hosts_of_the_same_file() -> None:
    remotes = [*CIFAR10Dataset._folders.values(), *CIFAR100Dataset._folders.values()]
    hosts = {
        file.name: [urlsplit(url).hostname for url in file.urls] for file in remotes
    }
    assert len(hosts) == 4
    for file in remotes:
        assert None not in (file.sha256, file.size)
        assert all(url.endswith(f"/{file.name}") for url in file.urls)
        assert hosts[file.name][0] == "www.cs.toronto.edu"
        assert len(set(hosts[file.name])) == 2


def test_splits_are_unpacked_in_threads(tmp_path: Path) -> None:
    folder = "cifar-10-batches-bin"
    records = np.random.default_rng(0).integers(0, 10, (300, 3073), np.uint8)
    names = [f"{name}.bin" for name in (*TRAIN, "test_batch")]
    tar(
        tmp_path / "cifar-10-binary.tar.gz",
        folder,
        dict.fromkeys(names, records.tobytes()),
    )
    begin = threading.Barrier(2)

    def count(split: str) -> int:
        begin.wait(60)
        source = CIFAR10Dataset.make_disk_source(split=split, cache_dir=tmp_path)
        return len(source)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(count, ("train", "test"))) == [1500, 300]
    assert len(list((tmp_path / folder).iterdir())) == 6


@pytest.fixture
def archive_server(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> FileServer:
    """A server with small versions of both CIFAR-10 archives."""
    folders = {}
    for folder, remote in CIFAR10Dataset._folders.items():
        suffix = ".bin" if folder.endswith("-bin") else ""
        content = tar(tmp_path / "a.tar.gz", folder, cifar10_files(suffix))
        server.offer(
            f"/cifar10/{remote.name}", file_server.cut_off(content, after=20_000)
        )
        digest = hashlib.sha256(content).hexdigest()
        folders[folder] = RemoteFile(
            remote.name, (), folder="cifar10", size=len(content), sha256=digest
        )
    monkeypatch.setattr(CIFAR10Dataset, "_folders", folders)
    return server


def test_cifar10_is_fetched_and_unpacked(
    archive_server: FileServer, home: Path
) -> None:
    check10(None)
    assert (home / ".cache/cyreal_cifar10/cifar-10-batches-bin").is_dir()
    requests = len(archive_server.requests)
    check10(None)
    assert len(archive_server.requests) == requests


@pytest.mark.parametrize("damage", ["cut", "deleted"])
@pytest.mark.parametrize("has_archive", [False, True])
@pytest.mark.parametrize("suffix", [".bin", ""])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_damaged_file_in_the_default_cache_is_replaced(
    archive_server: FileServer,
    home: Path,
    suffix: str,
    damage: str,
    has_archive: bool,
    is_read: bool,
) -> None:
    root = home / ".cache/cyreal_cifar10"
    name = "cifar-10-batches-bin" if suffix else "cifar-10-batches-py"
    write_all(root / name, cifar10_files(suffix))
    if has_archive:
        fetch(CIFAR10Dataset._folders[name], root / CIFAR10Dataset._folders[name].name)
    requests = len(archive_server.requests)
    path = root / name / f"data_batch_2{suffix}"
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-100])
    else:
        path.unlink()
    if is_read:
        check10(None)
    else:
        assert len(CIFAR10Dataset.make_disk_source()) == 15
    assert (len(archive_server.requests) == requests) == has_archive
    assert damage == "deleted" or path.read_bytes() == whole


def test_a_damaged_file_that_cannot_be_replaced_says_why(home: Path) -> None:
    root = home / ".cache/cyreal_cifar10/cifar-10-batches-bin"
    write_all(root, {**cifar10_files(".bin"), "test_batch.bin": b"x"})
    for use in (CIFAR10Dataset("test").as_array_dict, lambda: opened_off_disk(None)):
        with pytest.raises(DataError, match="not replaced: could not fetch") as caught:
            use()
        assert str(root / "test_batch.bin") in str(caught.value)


def test_a_damaged_file_in_the_users_folder_is_left(
    archive_server: FileServer, tmp_path: Path
) -> None:
    for folder in ("cifar-10-batches-bin", "."):
        root = tmp_path / f"own{len(folder)}"
        write_all(root / folder, {"test_batch.bin": b"x"})
        for use in (
            CIFAR10Dataset("test", root).as_array_dict,
            lambda root=root: opened_off_disk(root),
        ):
            with pytest.raises(DataError) as caught:
                use()
            told = root / folder if len(folder) > 1 else root / "test_batch.bin"
            assert caught.value.__notes__ == [
                f"Delete {told} to have it fetched again."
            ]
    assert not archive_server.requests


def opened_off_disk(root: Path | None) -> object:
    return CIFAR10Dataset.make_disk_source(split="test", cache_dir=root)


@pytest.mark.parametrize(
    ("folder", "make", "suffix"),
    [("cifar-100-binary", binary100, ".bin"), ("cifar-100-python", pickled100, "")],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_cifar100(
    tmp_path: Path, folder: str, make: Any, suffix: str, is_packed: bool
) -> None:
    files = {f"train{suffix}": make(0), f"test{suffix}": make(1)}
    if is_packed:
        kind = "binary" if suffix else "python"
        tar(tmp_path / f"cifar-100-{kind}.tar.gz", folder, files)
    else:
        write_all(tmp_path / folder, files)
    for seed, split in enumerate(("train", "test")):
        dataset = CIFAR100Dataset(split, tmp_path)
        images, fine, coarse = batch(seed)
        arrays = dataset.as_array_dict()
        np.testing.assert_array_equal(arrays["image"], images)
        np.testing.assert_array_equal(arrays["label"], fine)
        np.testing.assert_array_equal(arrays["coarse_label"], coarse)
        assert set(dataset[0]) == {"image", "label", "coarse_label"}
        assert arrays["coarse_label"].dtype == np.int32


def refused(root: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        len(CIFAR10Dataset("test", root))
    assert str(root) in str(caught.value)


@pytest.mark.parametrize(
    ("length", "found"),
    [
        (0, "an empty batch"),
        (1, "1 bytes after 0 records"),
        (3072, "3072 bytes after 0 records"),
        (3074, "1 bytes after 1 records"),
        (3 * 3073 - 1, "3072 bytes after 2 records"),
    ],
)
def test_records_that_do_not_fit_are_refused(
    tmp_path: Path, length: int, found: str
) -> None:
    write_all(tmp_path, {"test_batch.bin": binary10(0)[:length]})
    refused(tmp_path, f"records of 3073 bytes, found {found}")


def test_labels_out_of_range_are_refused(tmp_path: Path) -> None:
    content = bytearray(binary10(0))
    content[3073] = 10
    write_all(tmp_path, {"test_batch.bin": bytes(content)})
    refused(tmp_path, "label: sample 1: expected a value below 10, found 10")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"labels": [1]}, "expected a dict with 'data', found none"),
        ({"data": np.zeros((1, 3072)), "labels": [1]}, "found dtype f8"),
        ({"data": np.zeros((2, 9), np.uint8), "labels": [1]}, "found rows of 9"),
        ({"data": PLAIN}, "expected a dict with 'labels', found none"),
        ({"data": PLAIN, "labels": [1]}, "expected 2 labels in a list, found 1"),
        ({"data": PLAIN[:1], "labels": ["a"]}, "expected a label, found a value"),
        ({"data": PLAIN[:1], "labels": [-1]}, "found -1"),
        ({"data": PLAIN[:1], "labels": [2**70]}, "an integer of at most 8 bytes"),
        ({"data": PLAIN, "labels": [[1], [2, 3]]}, "expected a label, found a value"),
        ({"data": b"x"}, "expected 'data' to be an array"),
        ({"data": np.zeros((), np.uint8), "labels": [1]}, "expected a shape"),
    ],
)
def test_bad_pickled_batches_are_refused(
    tmp_path: Path, contents: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    write_all(folder, {"test_batch": pickle.dumps(contents)})
    refused(tmp_path, message)


def test_folders_with_the_names_of_batches_are_ignored(
    tmp_path: Path,
) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(DownloadError):
        len(CIFAR100Dataset(cache_dir=tmp_path))


def test_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "test_batch.bin").mkdir()
    refused(tmp_path, "found a directory")


def test_an_unfinished_folder_is_named(tmp_path: Path) -> None:
    write_all(tmp_path / "cifar-10-batches-bin", {"other": b""})
    files = cifar10_files(".bin")
    tar(tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin", files)
    refused(tmp_path, r"expected test_batch\.bin, found none; delete the folder")


def test_offline_errors_have_instructions(home: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        len(CIFAR10Dataset())
    for part in (
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        str(home / ".cache/cyreal_cifar10/cifar-10-binary.tar.gz"),
    ):
        assert part in str(caught.value)


def test_wrong_arguments_fail_at_once() -> None:
    with pytest.raises(ValueError, match="found 'val'"):
        CIFAR10Dataset("val")
    with pytest.raises(ValueError, match="found None"):
        CIFAR100Dataset(None)  # type: ignore[arg-type]
