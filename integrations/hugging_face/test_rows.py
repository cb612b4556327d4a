"""Hugging Face data sets whose rows workers read: images, text, formats, transforms."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import millstream as ms
import numpy as np
import PIL.Image
import pytest
from datasets import (
    Array2D,
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    Image,
    List,
    Value,
    load_from_disk,
)
from deliveries import check_deliveries, check_source

COUNT = 23


def picture(i: int) -> np.ndarray:
    return ((np.arange(48) * 5 + i) % 256).astype(np.uint8).reshape(4, 4, 3)


def images(folder: Path | None = None) -> Dataset:
    features = Features(
        {
            "image": Image(),
            "label": ClassLabel(names=["a", "b"]),
            "byte": Value("uint8"),
            "half": Value("float16"),
            "matrix": Array2D((2, 2), "uint8"),
            "free": List(Value("int16")),
            "pair": {"x": Value("float32"), "y": List(Value("int8"), length=2)},
        }
    )
    rows = [
        {
            "image": PIL.Image.fromarray(picture(i)),
            "label": i % 2,
            "byte": i,
            "half": i / 4,
            "matrix": [[i, 1], [2, i]],
            "free": [i, -i, 3],
            "pair": {"x": i / 8, "y": [i, 1]},
        }
        for i in range(COUNT)
    ]
    dataset = Dataset.from_list(rows, features=features)
    if folder is None:
        return dataset
    dataset.save_to_disk(folder)
    return load_from_disk(folder)


def truth(samples: range) -> dict[str, Any]:
    numbers = np.array(samples)
    return {
        "image": np.stack([picture(i) for i in samples]),
        "label": (numbers % 2).astype(np.int32),
        "byte": numbers.astype(np.uint8),
        "half": (numbers / 4).astype(np.float16),
        "matrix": np.stack([np.array([[i, 1], [2, i]], np.uint8) for i in samples]),
        "free": np.stack([np.array([i, -i, 3], np.int16) for i in samples]),
    }


@pytest.mark.parametrize(
    ("workers", "kind"), [(1, "thread"), (3, "thread"), (2, "process")]
)
def test_images(tmp_path: Path, workers: int, kind: str) -> None:
    dataset = images(tmp_path / "images").remove_columns("pair")
    source = ms.as_source(dataset, workers=workers, worker_kind=kind)
    assert source.origin == (
        "Hugging Face Dataset: workers read the rows, because 'image' is Image and "
        "'free' is List without a length (dataset.cast_column('free', "
        "List(Value('int16'), length=3)) gives it one)"
    )
    check_deliveries(source, truth(range(COUNT)))
    part = dataset.select(range(20, 3, -1))
    check_deliveries(ms.as_source(part), truth(range(20, 3, -1)))


def test_every_row_is_the_library_s(tmp_path: Path) -> None:
    dataset = images().shuffle(seed=1)
    source = ms.as_source(dataset)
    for i in range(COUNT):
        expected, found = dataset[i], source[i]
        np.testing.assert_array_equal(found["image"], np.asarray(expected["image"]))
        np.testing.assert_array_equal(found["free"], expected["free"])
        np.testing.assert_array_equal(found["pair"]["y"], expected["pair"]["y"])
        assert found["pair"]["x"] == expected["pair"]["x"]
        assert found["pair"]["y"].dtype == np.int8
        assert found["half"] == expected["half"]


def test_text_is_a_host_field() -> None:
    dataset = Dataset.from_dict({"x": range(10), "text": [f"t{i}" for i in range(10)]})
    source = ms.as_source(dataset, ordering="sequential")
    assert "because 'text' is string" in str(source.origin)
    loader = ms.DataLoader([source, ms.BatchTransform(5)])
    found = [batch for batch, _ in loader.iterate(loader.init_state(0))]
    assert [list(batch["text"]) for batch in found] == [
        [f"t{i}" for i in range(5)],
        [f"t{i}" for i in range(5, 10)],
    ]
    assert found[1]["x"].tolist() == [5, 6, 7, 8, 9]
    only = ms.as_source(dataset.select_columns("x"))
    assert "Arrow, 1 numeric column" in str(only.origin)


def numbers() -> Dataset:
    features = Features({"x": List(Value("float32"), length=3), "y": Value("int64")})
    rows = [{"x": [i, i / 2, 1], "y": i} for i in range(COUNT)]
    return Dataset.from_list(rows, features=features)


NUMBERS = {
    "x": np.array([[i, i / 2, 1] for i in range(COUNT)], np.float32),
    "y": np.arange(COUNT, dtype=np.int32),
}


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
def test_formats_are_not_bypassed(kind: str) -> None:
    dataset = numbers().with_format(kind)
    source = ms.as_source(dataset)
    assert source.origin == (
        f"Hugging Face Dataset: workers read the rows, because the data set has the "
        f"format {kind!r}; with_format(None) removes it"
    )
    check_deliveries(source, NUMBERS)
    check_deliveries(ms.as_source(dataset.with_format(None)), NUMBERS)


def test_a_format_with_arguments() -> None:
    dataset = numbers()
    dataset.set_format("numpy", columns=["x"], dtype=np.float16)
    check_deliveries(ms.as_source(dataset), {"x": NUMBERS["x"].astype(np.float16)})


class Doubled:
    """A transform, which counts the rows of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(len(batch["y"]))
        return {"twice": [np.float32(2 * y) for y in batch["y"]]}


@pytest.mark.parametrize("way", ["with_transform", "set_transform"])
def test_transforms_are_not_bypassed(way: str) -> None:
    dataset, doubled = numbers(), Doubled()
    if way == "with_transform":
        dataset = dataset.with_transform(doubled)
    else:
        dataset.set_transform(doubled)
    source = ms.as_source(dataset)
    assert "because the data set has a transform" in str(source.origin)
    check_deliveries(source, {"twice": 2 * NUMBERS["y"].astype(np.float32)})
    assert max(doubled.calls) > 1  # several rows in one call


def test_nulls_are_a_transform_s_business() -> None:
    dataset = Dataset.from_dict({"y": [1, None, 3]})

    def filled(batch: dict[str, Any]) -> dict[str, Any]:
        return {"y": [np.int32(-1 if y is None else y) for y in batch["y"]]}

    source = ms.as_source(dataset.with_transform(filled))
    check_deliveries(source, {"y": np.array([1, -1, 3], np.int32)})


class Negated(Dataset):
    """A subclass that changes the rows."""

    def __getitem__(self, key: Any) -> Any:
        return {"y": np.int32(-super().__getitem__(key)["y"])}


class NegatedRows(Dataset):
    def __getitems__(self, keys: list[int]) -> Any:
        return [{"y": np.int32(-row["y"])} for row in super().__getitems__(keys)]

    def __getitem__(self, key: Any) -> Any:
        row = super().__getitem__(key)
        return {"y": np.int32(-row["y"])} if isinstance(key, int) else row


@pytest.mark.parametrize("kind", [Negated, NegatedRows])
def test_subclasses_are_not_bypassed(kind: type[Dataset]) -> None:
    source = ms.as_source(kind(numbers().data))
    assert "because its class overrides" in str(source.origin)
    check_deliveries(source, {"y": -NUMBERS["y"]})


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_formats_of_tables(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"'{kind}'.*with_format\(None\)"):
        ms.as_source(numbers().with_format(kind))


def test_splits_and_streams() -> None:
    both = DatasetDict({"train": numbers(), "test": numbers()})
    with pytest.raises(
        TypeError, match=r"choose a split: \['train', 'test'\]"
    ) as error:
        ms.as_source(both)
    assert "as_source(dataset['train'])" in str(error.value)
    with pytest.raises(TypeError, match=r"IterableSource\(dataset\)"):
        ms.as_source(numbers().to_iterable_dataset())
    with pytest.raises(ValueError, match="no rows"):
        ms.as_source(numbers().select([]))


def test_pickled_rows() -> None:
    source = pickle.loads(pickle.dumps(ms.as_source(images())))
    np.testing.assert_array_equal(source[5]["image"], picture(5))


NULLS = {
    "a number": (Value("int32"), 1, None),
    "a boolean": (Value("bool"), True, None),
    "a list": (List(Value("float32"), length=2), [1.0, 2.0], None),
    "in a list": (List(Value("float32"), length=2), [1.0, 2.0], [1.0, None]),
    "in a free list": (List(Value("float32")), [1.0, 2.0], [1.0, None]),
    "a matrix": (Array2D((1, 2), "int8"), [[1, 2]], None),
    "all": (Value("null"), None, None),
}


@pytest.mark.parametrize("case", NULLS)
def test_nulls(case: str) -> None:
    feature, value, null = NULLS[case]
    values = [value] * 9
    values[6] = null
    dataset = Dataset.from_list(
        [{"x": x, "y": 1} for x in values],
        features=Features({"x": feature, "y": Value("int8")}),
    )
    first = 0 if case == "all" else 6
    for again in (dataset, Dataset(dataset.data.table.slice(0, 9))):
        with pytest.raises(ms.DataError, match=rf"item {first} of column 'x'") as error:
            ms.as_source(again)
        assert (error.value.sample, error.value.field) == (first, "x")
        assert "dataset.filter(" in str(error.value)
    if case == "all":
        return
    with pytest.raises(ms.DataError, match="item 2 of column 'x'"):
        ms.as_source(dataset.select([8, 0, 6, 7]))
    kept = dataset.filter(lambda row: row["x"] == value)
    assert len(kept) == 8
    dtype = ms.as_source(kept)[0]["x"].dtype
    rows = [kept[i] for i in range(8)]
    check_source(ms.as_source(kept), rows, {"x": dtype, "y": np.int8})


def test_lists_of_different_lengths() -> None:
    dataset = Dataset.from_dict({"x": [[1, 2], [3, 4], [5], [6, 7]]})
    with pytest.raises(ms.DataError, match=r"item 2 of column 'x' has 1 elem.*Pad or"):
        ms.as_source(dataset)
    with pytest.raises(ms.DataError, match="item 1 of column 'x' has 1 elements"):
        ms.as_source(dataset.select([3, 2]))
    same = dataset.select([3, 0])
    check_deliveries(ms.as_source(same), {"x": np.array([[6, 7], [1, 2]], np.int32)})


def test_images_of_different_sizes() -> None:
    pictures = [PIL.Image.new("L", (4, 5 if i == 6 else 4)) for i in range(9)]
    dataset = Dataset.from_dict({"image": pictures}, Features({"image": Image()}))
    loader = ms.DataLoader([ms.as_source(dataset), ms.BatchTransform(9)])
    with pytest.raises(Exception, match=r"(?s)image.*\[5, 4\]") as error:
        next(loader.iterate(loader.init_state(0)))
    assert "sample 6" in str([error.value, *getattr(error.value, "__notes__", [])])


def test_an_image_that_is_missing() -> None:
    pictures = [None if i == 6 else PIL.Image.new("L", (4, 4)) for i in range(9)]
    dataset = Dataset.from_dict({"image": pictures}, Features({"image": Image()}))
    with pytest.raises(ms.DataError, match="item 6 of column 'image' is null"):
        ms.as_source(dataset)
    assert len(ms.as_source(dataset.filter(lambda row: row["image"] is not None))) == 8
