"""The tutorial's section on Grain.

Millstream's loader takes the same data source. Two lines change: an import, and the
line that starts the training, where `loader` stands for the expression that creates it.
The sampler and the generator are no longer needed.
"""

from __future__ import annotations

import data_sets
import grain.python as pygrain
import jax.numpy as jnp
import numpy as np
from millstream.torch import DataLoader  # changed line 1: the import
from network import batch_size, n_targets, one_hot
from sections import Loader, Section
from torch_data import FashionMNIST


class Dataset:
    def __init__(self, data_dir, train=True):
        self.data_dir = data_dir
        self.train = train
        self.load_data()

    def load_data(self):
        self.dataset = FashionMNIST(self.data_dir, train=self.train)

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        img, label = self.dataset[index]
        return np.ravel(np.array(img, dtype=np.float32)), label


def section(data_dir):
    """The data set in `data_dir` with both loaders."""
    mnist_dataset = Dataset(data_dir)

    # Convert training data to JAX arrays and encode labels as one-hot vectors
    train = [mnist_dataset[i] for i in range(len(mnist_dataset))]
    train_images = jnp.array([image for image, _ in train], dtype=jnp.float32)
    train_labels = one_hot(np.array([label for _, label in train]), n_targets)

    # Load test dataset and process it
    mnist_dataset_test = Dataset(data_dir, train=False)
    test = [mnist_dataset_test[i] for i in range(len(mnist_dataset_test))]
    test_images = jnp.array([image for image, _ in test], dtype=jnp.float32)
    test_labels = one_hot(np.array([label for _, label in test]), n_targets)

    sampler = pygrain.SequentialSampler(
        num_records=len(mnist_dataset),
        shard_options=pygrain.NoSharding(),  # Single-device, no sharding
    )

    def pygrain_training_generator(**options):
        """Grain DataLoader generator for training."""
        return pygrain.DataLoader(
            data_source=mnist_dataset,
            sampler=sampler,
            operations=[pygrain.Batch(batch_size)],
            **options,
        )

    def without_threads():
        # The default is 16 threads, which take turns because they hold the GIL.
        return pygrain_training_generator(
            read_options=pygrain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        )

    # before: train_model(num_epochs, params, pygrain_training_generator)
    # after:  train_model(num_epochs, params, loader, data_loader_type="iterable")
    loader = DataLoader(mnist_dataset, batch_size)

    return Section(
        title="Grain",
        evaluation=(train_images, train_labels, test_images, test_labels),
        loaders=[
            Loader("Grain", pygrain_training_generator, "streamed"),
            Loader("Grain, num_threads=0", without_threads, "streamed"),
            Loader("Millstream", loader, "iterable"),
        ],
    )


write = data_sets.write_torchvision
