"""The tutorial's section on Hugging Face's datasets.

Millstream's loader takes the same data set. Two lines change: an import, and the line
of the generator that asks for batches.

In recent versions, `mnist_dataset["train"]["image"]` is a column and not an array, and
the tutorial's cell fails. `[:]` reads the array.
"""

from __future__ import annotations

import data_sets
from datasets import load_from_disk
from millstream.torch import DataLoader  # changed line 1: the import
from network import batch_size, n_targets, one_hot
from sections import Loader, Section


def section(data_dir):
    """The data set in `data_dir` with both loaders."""
    mnist_dataset = load_from_disk(data_dir).with_format("numpy")

    train_images = mnist_dataset["train"]["image"][:]
    train_labels = mnist_dataset["train"]["label"][:]
    test_images = mnist_dataset["test"]["image"][:]
    test_labels = mnist_dataset["test"]["label"][:]

    # Flatten images and one-hot encode labels
    image_shape = train_images.shape[1:]
    num_features = image_shape[0] * image_shape[1]

    train_images = train_images.reshape(-1, num_features)
    test_images = test_images.reshape(-1, num_features)

    train_labels = one_hot(train_labels, n_targets)
    test_labels = one_hot(test_labels, n_targets)

    def hf_training_generator():
        """Yield batches for training."""
        for batch in mnist_dataset["train"].iter(batch_size):
            x, y = batch["image"], batch["label"]
            yield x, y

    def millstream_training_generator():
        """Yield batches for training."""
        for batch in DataLoader(mnist_dataset["train"], batch_size):  # changed line 2
            x, y = batch["image"], batch["label"]
            yield x, y

    return Section(
        title="Hugging Face",
        evaluation=(train_images, train_labels, test_images, test_labels),
        loaders=[
            Loader("Hugging Face", hf_training_generator, "streamed"),
            Loader("Millstream", millstream_training_generator, "streamed"),
        ],
    )


write = data_sets.write_hugging_face
