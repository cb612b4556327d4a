"""The tutorial's section on PyTorch's DataLoader.

Millstream's loader takes the same data set. Two lines change: an import, and the line
that creates the loader. `numpy_collate` and `NumpyLoader` are no longer needed.
"""

from __future__ import annotations

import data_sets
import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_map
from millstream.torch import DataLoader  # changed line 1: the import
from network import batch_size, n_targets, one_hot
from sections import Loader, Section
from torch.utils import data
from torch_data import FashionMNIST, FlattenAndCast


def numpy_collate(batch):
    """Convert a batch of PyTorch data to NumPy arrays."""
    return tree_map(np.asarray, data.default_collate(batch))


class NumpyLoader(data.DataLoader):
    """Custom DataLoader to return NumPy arrays from a PyTorch Dataset."""

    def __init__(self, dataset, batch_size=1, shuffle=False, **kwargs):
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            collate_fn=numpy_collate,
            **kwargs,
        )


def pytorch_training_generator(mnist_dataset, **workers):
    return NumpyLoader(mnist_dataset, batch_size=batch_size, **workers)


def millstream_training_generator(mnist_dataset, **workers):
    return DataLoader(mnist_dataset, batch_size=batch_size, **workers)  # changed line 2


def section(data_dir):
    """The data set in `data_dir` with both loaders."""
    mnist_dataset = FashionMNIST(data_dir, transform=FlattenAndCast())
    train_images = jnp.array(
        mnist_dataset.data.numpy().reshape(len(mnist_dataset.data), -1),
        dtype=jnp.float32,
    )
    train_labels = one_hot(np.array(mnist_dataset.targets), n_targets)

    mnist_dataset_test = FashionMNIST(data_dir, train=False)
    test_images = jnp.array(
        mnist_dataset_test.data.numpy().reshape(len(mnist_dataset_test.data), -1),
        dtype=jnp.float32,
    )
    test_labels = one_hot(np.array(mnist_dataset_test.targets), n_targets)

    theirs, ours = pytorch_training_generator, millstream_training_generator
    two = {"num_workers": 2, "persistent_workers": True}
    return Section(
        title="PyTorch",
        evaluation=(train_images, train_labels, test_images, test_labels),
        loaders=[
            Loader("PyTorch, 0 workers", theirs(mnist_dataset), "iterable"),
            Loader("Millstream, 0 workers", ours(mnist_dataset), "iterable"),
            Loader("PyTorch, 2 workers", theirs(mnist_dataset, **two), "iterable"),
            Loader("Millstream, 2 workers", ours(mnist_dataset, **two), "iterable"),
        ],
    )


write = data_sets.write_torchvision
