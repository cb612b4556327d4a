"""Writes Fashion-MNIST as a data set of each library, with that library's own writer.

The tutorial downloads MNIST. Fashion-MNIST has the same shapes, and Debian's package
dataset-fashion-mnist has its files. `count` limits the samples of each split.
"""

from __future__ import annotations

import contextlib
import shutil

import millstream as ms
import numpy as np

CLASSES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]


def arrays(count=None):
    """Images uint8[n, 28, 28] and labels uint8[n] of the splits "train" and "test"."""
    splits = {}
    for split in ("train", "test"):
        data = ms.FashionMNISTDataset(split=split).as_array_dict()
        images = np.asarray(data["image"])[:count].reshape(-1, 28, 28)
        splits[split] = images, np.asarray(data["label"])[:count].astype(np.uint8)
    return splits


def write_torchvision(folder, count=None):
    """Writes the files that `torchvision.datasets.FashionMNIST(folder)` reads."""
    raw = folder / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for split, pair in arrays(count).items():
        name = "train" if split == "train" else "t10k"
        files = [f"{name}-images-idx3-ubyte", f"{name}-labels-idx1-ubyte"]
        source = ms.ArraySampleSource(pair, "sequential")
        ms.write_idx(source, tuple(raw / file for file in files))


def write_tfds(folder, count=None):
    """Writes a data set for `tfds.load("fashion_mnist_idx", data_dir=folder)`."""
    import tensorflow_datasets as tfds

    class FashionMnistIdx(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            image = tfds.features.Image(shape=(28, 28, 1))
            label = tfds.features.ClassLabel(names=CLASSES)
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict({"image": image, "label": label}),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in arrays(1)}

        def _generate_examples(self, split):
            images, labels = arrays(count)[split]
            for i, image in enumerate(images[..., None]):
                yield i, {"image": image, "label": int(labels[i])}

    FashionMnistIdx(data_dir=folder).download_and_prepare()


def write_hugging_face(folder, count=None):
    """Writes a data set that `datasets.load_from_disk(folder)` reads."""
    import datasets

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    )
    datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict(
                {"image": list(images), "label": labels}, features=features
            )
            for split, (images, labels) in arrays(count).items()
        }
    ).save_to_disk(folder)


def written_once(write, folder, count=None):
    """Returns `folder` after `write(folder, count)`, unless it exists."""
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.new")
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(new)
        write(new, count)
        new.rename(folder)
    return folder
