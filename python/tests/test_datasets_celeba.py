"""CelebA from a small folder in the same format."""

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from millstream import BatchTransform, CelebADataset, DataLoader
from millstream._core.errors import DataError
from walks import indexed, iterated, jitted, same_walk, scanned

NAMES = [f"{number:06}.jpg" for number in range(1, 7)]
PARTS = [0, 0, 0, 1, 2, 2]


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MILLSTREAM_MIRROR", "http://127.0.0.1:9")


def image(number: int) -> np.ndarray:
    return np.full((8, 6, 3), 30 * number, np.uint8)


def write_lists(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    rows = zip(NAMES, PARTS, strict=True)
    text = "".join(f"{name} {part}\n" for name, part in rows)
    (root / "list_eval_partition.txt").write_text(text)
    values = ["-1  1 -1", " 1  1  1", "-1 -1 -1", " 1 -1 -1", "-1 -1  1", " 1  1 -1"]
    rows = [f"{name} {row}\n" for name, row in zip(NAMES, values, strict=True)]
    attributes = "6\nBald Smiling Young \n" + "".join(reversed(rows))
    (root / "list_attr_celeba.txt").write_text(attributes)


def write_images(folder: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        pillow.fromarray(image(number)).save(folder / name, quality=100)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_lists(tmp_path)
    write_images(tmp_path / "img_align_celeba")
    return tmp_path


def check(root: Path, **options: Any) -> None:
    for split, part in (("train", 0), ("valid", 1), ("test", 2)):
        dataset = CelebADataset(split, cache_dir=root, **options)
        numbers = [number for number, found in enumerate(PARTS) if found == part]
        assert len(dataset) == len(numbers)
        arrays = dataset.as_array_dict()
        for position, number in enumerate(numbers):
            sample = dataset[position]
            np.testing.assert_allclose(sample["image"], image(number), atol=2)
            np.testing.assert_array_equal(arrays["image"][position], sample["image"])
            assert sample["image"].dtype == np.uint8


def test_images_of_each_split(root: Path) -> None:
    check(root)


def test_a_nested_folder(tmp_path: Path) -> None:
    write_lists(tmp_path)
    write_images(tmp_path / "img_align_celeba" / "img_align_celeba")
    check(tmp_path)


@pytest.mark.parametrize("is_begun", [False, True])
def test_an_archive_is_unpacked(tmp_path: Path, is_begun: bool) -> None:
    write_lists(tmp_path)
    if is_begun:
        (tmp_path / "img_align_celeba").mkdir()
    write_images(tmp_path / "images")
    with zipfile.ZipFile(tmp_path / "img_align_celeba.zip", "w") as archive:
        for name in NAMES:
            archive.write(tmp_path / "images" / name, f"img_align_celeba/{name}")
    check(tmp_path)


def test_attributes_are_zero_or_one_in_the_order_of_the_images(root: Path) -> None:
    dataset = CelebADataset(data_dir=root)
    assert dataset.attribute_names == ("Bald", "Smiling", "Young")
    expected = [[0, 1, 0], [1, 1, 1], [0, 0, 0]]
    assert dataset.as_array_dict()["attributes"].tolist() == expected
    assert dataset[1]["attributes"].dtype == np.int32
    assert dataset[-2]["attributes"].tolist() == [1, 1, 1]
    with pytest.raises(IndexError, match="index 3 is out of range for 3 samples"):
        dataset[3]


def test_attributes_may_be_left_out(root: Path) -> None:
    (root / "list_attr_celeba.txt").unlink()
    dataset = CelebADataset(data_dir=root, include_attributes=False)
    assert set(dataset[0]) == set(dataset.as_array_dict()) == {"image"}
    assert dataset.attribute_names == ()


def test_without_pillow_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lists(tmp_path)
    (tmp_path / "img_align_celeba").mkdir()
    (tmp_path / "img_align_celeba" / NAMES[0]).touch()
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    dataset = CelebADataset(data_dir=tmp_path)
    assert len(dataset) == 3
    assert dataset.files()[0] == tmp_path / "img_align_celeba" / NAMES[0]
    with pytest.raises(ImportError, match="install the package pillow"):
        dataset[0]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_disk_source(root: Path, kind: str) -> None:
    arrays = CelebADataset(data_dir=root).as_array_dict()
    source = CelebADataset.make_disk_source(data_dir=root, worker_kind=kind)
    assert len(source) == 3
    loader = DataLoader([source, BatchTransform(2)])
    state = loader.init_state(0)
    wanted = indexed(loader, arrays, state, 4)
    for walk in (iterated, jitted, scanned):
        same_walk(walk(loader, state, 4), wanted)


def test_disk_source_options(root: Path) -> None:
    source = CelebADataset.make_disk_source(
        split="test",
        cache_dir=root,
        ordering="sequential",
        include_attributes=False,
        workers=np.int32(1),
        prefetch_size=np.int64(3),
    )
    loader = DataLoader([source, BatchTransform(2)])
    ((batch, _),) = loader.iterate(loader.init_state(0))
    assert set(batch) == {"image"}
    np.testing.assert_allclose(batch["image"], [image(4), image(5)], atol=2)
    with pytest.raises(ValueError, match="split must be one of"):
        CelebADataset.make_disk_source(split="val", cache_dir=root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be a whole number"),
        ({"worker_kind": "fork"}, "worker_kind must be one of"),
        ({"ordering": "random"}, "unknown ordering 'random'"),
        ({"prefetch_size": 0}, "prefetch_size must be a whole number"),
    ],
)
def test_wrong_options_fail_before_anything_is_fetched(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CelebADataset.make_disk_source(cache_dir=tmp_path, **options)


def test_a_damaged_image_in_a_disk_source(root: Path) -> None:
    source = CelebADataset.make_disk_source(data_dir=root, ordering="sequential")
    loader = DataLoader([source, BatchTransform(1)])
    (root / "img_align_celeba" / NAMES[1]).write_bytes(b"no image")
    walk = loader.iterate(loader.init_state(0))
    next(walk)
    with pytest.raises(DataError, match=NAMES[1]):
        next(walk)


def test_damaged_missing_and_differently_sized_images(root: Path) -> None:
    dataset = CelebADataset(data_dir=root)
    path = root / "img_align_celeba" / NAMES[0]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=NAMES[0]):
        dataset[0]
    path.write_bytes(b"no image")
    with pytest.raises(DataError, match=NAMES[0]):
        dataset[0]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        dataset[0]
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(image(1)[:4]).save(path)
    with pytest.raises(DataError, match=r"an image of \[4, 6, 3\], found \[8, 6, 3\]"):
        dataset.as_array_dict()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("list_eval_partition.txt", "", "images of split 'train', found none"),
        ("list_eval_partition.txt", "a.jpg 3\n", "line 1: expected a file name"),
        ("list_eval_partition.txt", "../a.jpg 0\n", "line 1: expected a file name"),
        ("list_eval_partition.txt", "a.jpg\n", "line 1: expected a file name"),
        ("list_attr_celeba.txt", "6\n", "a count and a line of names"),
        ("list_attr_celeba.txt", "6\nBald\n000001.jpg 2\n", "line 3: expected 1 value"),
        ("list_attr_celeba.txt", "6\nBald\n000001.jpg\n", "line 3: expected 1 value"),
        ("list_attr_celeba.txt", "6\nBald\n000001.jpg 1\n", "attributes of 000002"),
    ],
)
def test_bad_lists_are_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    write_lists(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        _ = CelebADataset(data_dir=tmp_path).attribute_names
    assert str(tmp_path / name) in str(caught.value)


def test_wrong_arguments_fail_at_once() -> None:
    with pytest.raises(ValueError, match="'train', 'valid', 'test'; found 'val'"):
        CelebADataset("val")
