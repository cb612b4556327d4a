"""Data sources of TensorFlow Datasets, compared with their own reading."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from conftest import check_same
from documents import run_blocks
from millstream.torch import DataLoader
from reading import check_reading, check_shuffled

N = 10


class Digits(tfds.core.GeneratorBasedBuilder):
    """Images, labels, names and vectors, written by TFDS."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        image: Any = tfds.features.Tensor(shape=(28, 28, 1), dtype=np.uint8)
        if self.builder_config.name == "encoded":
            image = tfds.features.Image(shape=(28, 28, 1))
        features = {
            "image": image,
            "label": tfds.features.ClassLabel(num_classes=10),
            "vector": tfds.features.Tensor(shape=(3,), dtype=np.float32),
        }
        if self.builder_config.name == "named":
            features["name"] = tfds.features.Text()
        features = tfds.features.FeaturesDict(features)
        return tfds.core.DatasetInfo(builder=self, features=features)

    BUILDER_CONFIGS = [  # noqa: RUF012
        tfds.core.BuilderConfig(name="plain"),
        tfds.core.BuilderConfig(name="named"),
        tfds.core.BuilderConfig(name="encoded"),
    ]

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples(0), "test": self._generate_examples(1)}

    def _generate_examples(self, seed: int) -> Any:
        random = np.random.default_rng(seed)
        for i in range(N):
            sample = {
                "image": random.integers(0, 256, (28, 28, 1), np.uint8),
                "label": i,
                "vector": random.random(3, np.float32),
            }
            if self.builder_config.name == "named":
                sample["name"] = f"sample {i}"
            yield i, sample


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tfds")
    made = {}
    for name in ("plain", "named", "encoded"):
        made[name] = Digits(
            config=name, data_dir=str(folder), file_format="array_record"
        )
        made[name].download_and_prepare()
    return made


def read(source: Any) -> list[Any]:
    return [source[i] for i in range(len(source))]


@pytest.mark.parametrize("split", ["train", "test", "train[2:9]"])
def test_splits(builders, split):
    data = builders["plain"].as_data_source(split=split)
    found = check_reading(data, read(data), workers=2)
    assert found.origin == "tfds ArrayRecordDataSource, in workers"
    assert set(found[0]) == {"image", "label", "vector"}
    check_shuffled(data, read(data))


def test_images(builders):
    pytest.importorskip("PIL")
    data = builders["encoded"].as_data_source(split="train")
    check_reading(data, read(data))


def test_decoders(builders):
    decoders = {"image": tfds.decode.SkipDecoding()}
    data = builders["encoded"].as_data_source(split="train", decoders=decoders)
    source: Any = ms.as_source(data, ordering="sequential")
    assert source.host_field_names == ("image",)  # the bytes of the files
    loader = ms.DataLoader([source, ms.BatchTransform(4)])
    batch, _ = next(loader.run())
    assert batch["image"] == [sample["image"] for sample in read(data)[:4]]


def test_text_arrives_as_lists(builders):
    data = builders["named"].as_data_source(split="train")
    loader = ms.DataLoader([data, ms.BatchTransform(4, remainder="drop")])
    names = {sample["label"]: sample["name"] for sample in read(data)}
    for batch, _ in loader.run(epochs=1):
        labels = np.asarray(batch["label"]).tolist()
        assert batch["name"] == [names[label] for label in labels]


def test_all_splits_say_choose_one(builders):
    data = builders["plain"].as_data_source()
    for call in (
        lambda: ms.as_source(data),
        lambda: DataLoader(data),
        lambda: ms.as_source({name: tf.data.Dataset.range(3) for name in data}),
    ):
        with pytest.raises(TypeError, match=r"Choose a split: \['train', 'test'\]"):
            call()


def test_tf_data_names_iterable_source():
    for value in (tf.data.Dataset.range(5), tf.data.Dataset.range(5).batch(2)):
        with pytest.raises(TypeError, match=r"can only be iterated.*IterableSource"):
            ms.as_source(value)
    numbers = ms.IterableSource(tf.data.Dataset.range(4).as_numpy_iterator)
    assert [int(x) for x, _ in ms.DataLoader([numbers]).run(epochs=1)] == [0, 1, 2, 3]


def test_arrays_of_tensorflow():
    tensors = {"x": tf.random.normal((N, 3)), "y": tf.range(N)}
    samples = [{"x": tensors["x"][i].numpy(), "y": i} for i in range(N)]
    check_reading(tensors, samples)
    source = ms.as_source(tensors["x"], ordering="sequential")
    check_same(source[3], samples[3]["x"])


def test_the_loader_for_plain_loops_has_the_batches_of_tfds(builders):
    data = builders["plain"].as_data_source(split="train")
    batches = list(DataLoader(data, 4, num_workers=2, worker_kind="thread"))
    expected = read(data)
    for step, batch in enumerate(batches):
        rows = expected[4 * step : 4 * step + 4]
        stacked = jax.tree.map(lambda *values: np.stack(values), *rows)
        stacked["label"] = stacked["label"].astype(np.int32)
        check_same(batch, stacked)


def test_the_code_of_the_page(builders):
    run_blocks("tfds", builder=builders["plain"])
