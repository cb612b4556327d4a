"""The tutorial's section on TensorFlow Datasets.

The tutorial reads the whole data set into `train_data` for the evaluation, and then
reads it from disk again in every epoch. Millstream takes batches of `train_data`. Two
lines change: an import, and the line that starts the training, where `loader` stands
for the expression that creates it.
"""

from __future__ import annotations

import data_sets
import jax.numpy as jnp
import tensorflow as tf
import tensorflow_datasets as tfds
from millstream.torch import DataLoader  # changed line 1: the import
from network import batch_size, n_targets, num_pixels, one_hot
from sections import Loader, Section

# Ensuring CPU-Only Execution, disable any GPU usage(if applicable) for TF
tf.config.set_visible_devices([], device_type="GPU")


def section(data_dir):
    """The data set in `data_dir` with both loaders."""
    # tfds.load returns tf.Tensors (or tf.data.Datasets if batch_size != -1)
    mnist_data, _info = tfds.load(
        name="fashion_mnist_idx", batch_size=-1, data_dir=data_dir, with_info=True
    )
    mnist_data = tfds.as_numpy(mnist_data)
    train_data, test_data = mnist_data["train"], mnist_data["test"]

    # Full train set
    train_images, train_labels = train_data["image"], train_data["label"]
    train_images = jnp.reshape(train_images, (len(train_images), num_pixels))
    train_labels = one_hot(train_labels, n_targets)

    # Full test set
    test_images, test_labels = test_data["image"], test_data["label"]
    test_images = jnp.reshape(test_images, (len(test_images), num_pixels))
    test_labels = one_hot(test_labels, n_targets)

    def training_generator():
        # as_supervised=True gives us the (image, label) as a tuple instead of a dict
        ds = tfds.load(
            name="fashion_mnist_idx",
            split="train",
            as_supervised=True,
            data_dir=data_dir,
        )
        # You can build up an arbitrary tf.data input pipeline
        ds = ds.batch(batch_size).prefetch(1)
        # tfds.dataset_as_numpy converts the tf.data.Dataset into an iterable of NumPy
        # arrays
        return tfds.as_numpy(ds)

    # before: train_model(num_epochs, params, training_generator)
    # after:  train_model(num_epochs, params, loader, data_loader_type="iterable")
    loader = DataLoader((train_data["image"], train_data["label"]), batch_size)

    return Section(
        title="TFDS",
        evaluation=(train_images, train_labels, test_images, test_labels),
        loaders=[
            Loader("TFDS", training_generator, "streamed"),
            Loader("Millstream", loader, "iterable"),
        ],
    )


write = data_sets.write_tfds
