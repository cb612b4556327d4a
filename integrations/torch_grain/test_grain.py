"""Sources and data sets of Grain, compared with their own reading."""

from __future__ import annotations

from typing import Any

import grain
import millstream as ms
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from documents import run_blocks
from grain.transforms import RandomMap
from millstream.torch import DataLoader
from reading import check_reading, check_shuffled

N = 10


class Digits:
    """The data set of the JAX AI stack's tutorial: (float32[784], int)."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        image = np.random.default_rng(int(index)).random(784, np.float32)
        return image, int(index) % 7


class Noisy(RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return {"x": element[0][:3] + rng.random(3, np.float32), "y": element[1]}


def first(element: Any) -> Any:
    return {"x": element[0][:5], "y": np.int16(element[1])}


def parse(record: bytes) -> Any:
    return np.frombuffer(record, np.uint8).astype(np.float32)


def read(dataset: Any) -> list[Any]:
    return [dataset[i] for i in range(len(dataset))]


def source() -> Any:
    return grain.MapDataset.source(Digits())


def test_random_access_sources():
    check_reading(Digits(), read(Digits()))
    check_shuffled(Digits(), read(Digits()))
    numbers = grain.sources.RangeDataSource(3, 40, 5)
    found = check_reading(numbers, list(range(3, 40, 5)), workers=2)
    assert found.origin == "Grain RangeDataSource, in workers"


@pytest.mark.parametrize(
    "dataset",
    [
        source(),
        source().map(first),
        source().map(first).shuffle(seed=3),
        source().seed(5).random_map(Noisy()),
        source().shuffle(seed=1)[2:9].map(first),
        source().map(first).repeat(2),
        grain.MapDataset.concatenate([source(), source().shuffle(seed=2)]),
        grain.experimental.ZipMapDataset([source(), source().map(first)]),
        source().batch(2).map(lambda batch: batch[0].sum(axis=0)),
    ],
    ids=str,
)
def test_map_datasets(dataset):
    found = check_reading(dataset, read(dataset))
    assert found.origin == "Grain MapDataset, in workers"


def test_a_shuffled_map_dataset_is_shuffled_again():
    dataset = source().map(first).shuffle(seed=3)
    check_shuffled(dataset, read(dataset))


def write_records(path: Any) -> Any:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for i in range(N):
        writer.write(bytes([i, i + 1, i + 2]))
    writer.close()
    return grain.sources.ArrayRecordDataSource(str(path))


class Parsed(grain.sources.ArrayRecordDataSource):
    def __getitem__(self, index: Any) -> Any:
        return parse(super().__getitem__(index))

    def __getitems__(self, indices: Any) -> Any:
        return [parse(record) for record in super().__getitems__(indices)]


def test_array_records(tmp_path):
    records = write_records(tmp_path / "a.array_record")
    with pytest.raises(TypeError, match=r"are bytes.*MapDataset.source\(source\).map"):
        ms.as_source(records)
    parsed = grain.MapDataset.source(records).map(parse)
    check_reading(parsed, read(parsed))
    check_shuffled(parsed, read(parsed))
    subclass = Parsed(str(tmp_path / "a.array_record"))
    check_reading(subclass, read(parsed), workers=2)


def loaded() -> Any:
    sampler = grain.samplers.IndexSampler(N, grain.sharding.NoSharding(), num_epochs=1)
    return grain.DataLoader(data_source=Digits(), sampler=sampler)


@pytest.mark.parametrize(
    ("make", "kind", "texts"),
    [
        (lambda: source().batch(2), ValueError, ["batches", "Remove .batch(...)"]),
        (lambda: source().batch(2).shuffle(seed=1), ValueError, ["Remove .batch(...)"]),
        (lambda: source().repeat(), ValueError, [".repeat() makes", "epochs"]),
        (
            lambda: source().filter(lambda x: x[1] > 2).map(first),
            ValueError,
            [".filter(...)", "FilterTransform", "IterableSource"],
        ),
        (lambda: source().to_iter_dataset(), TypeError, ["IterableSource(iterable)"]),
        (loaded, TypeError, ["DataLoader can only be iterated", "IterableSource"]),
    ],
)
def test_what_has_no_samples_is_refused_by_name(make, kind, texts):
    for call in (
        lambda: ms.as_source(make()),
        lambda: ms.DataLoader([make(), ms.BatchTransform(2)]),
        lambda: DataLoader(make(), 2),
        lambda: DataLoader(make(), 2, collate_fn=list),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert all(text in str(caught.value) for text in texts), caught.value


def test_following_the_advice_for_iterables_works():
    iterable = source().to_iter_dataset()
    loader = ms.DataLoader([ms.IterableSource(iterable), ms.BatchTransform(5)])
    labels = [int(y) for (_, ys), _ in loader.run(epochs=1) for y in ys]
    assert labels == [y for _, y in read(Digits())]


def test_the_loader_for_plain_loops_has_the_batches_of_grain():
    theirs = source().batch(4, drop_remainder=False)
    ours = DataLoader(source(), 4, output="numpy")
    for found, expected in zip(ours, read(theirs), strict=True):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_worker_processes():
    dataset = source().map(lambda element: element[0][:2])
    check_reading(dataset, read(dataset), worker_kind="process")


def test_the_code_of_the_page():
    run_blocks("grain")
