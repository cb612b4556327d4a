"""Trains a small network on Fashion-MNIST, with batches sharded over all devices.

Every device has a copy of the network and a part of each batch. XLA adds up the
gradients. The batches are the same as on one device. This command simulates eight
devices on the CPU:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/data_parallel.py

To use several processes, add a line at the start of `main`, such as
`jax.distributed.initialize("host:1234", num_processes=2, process_id=0)`. Each process
then reads only the rows of its own devices.
"""

from __future__ import annotations

import argparse

import jax
import millstream as ms
import numpy as np
from fashion_mnist import accuracy, init_params, update
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

BATCH = 256


def generated(samples, seed=0):
    """Random images in the format of Fashion-MNIST. A stripe shows the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, samples).astype(np.int32)
    images = rng.integers(0, 60, (samples, 28, 28, 1), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] += 150
    return {"image": images, "label": labels}


def mesh_of_all_devices():
    """A mesh of all devices of all processes along one axis."""
    return jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))


def pipeline(data, mesh, batch_size=BATCH):
    """A loader of shuffled, normalised batches, sharded over the mesh."""
    return ms.DataLoader(
        [
            ms.ArraySampleSource(data, ordering="shuffle"),
            ms.NormalizeImageTransform("image"),
            ms.BatchTransform(batch_size),
            ms.DevicePutTransform(NamedSharding(mesh, P("data"))),
        ]
    )


def train(data, test, epochs, seed=0):
    """Trains with one jitted scan per epoch; returns the accuracies."""
    mesh = mesh_of_all_devices()
    loader = pipeline(data, mesh)
    replicated = NamedSharding(mesh, P())
    params = jax.device_put(init_params(jax.random.key(seed)), replicated)
    state = loader.init_state(seed)
    scores = []
    for epoch in range(epochs):
        state, params, losses = loader.scan_epoch(state, params, update)
        scores.append(float(accuracy(params, test["image"], test["label"])))
        print(
            f"epoch {epoch + 1}: loss {losses.mean():.4f}, accuracy {scores[-1]:.4f} "
            f"on {mesh.size} devices"
        )
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument(
        "--generated",
        type=int,
        metavar="N",
        help="train on N generated images instead of Fashion-MNIST",
    )
    arguments = parser.parse_args()
    if arguments.generated:
        data = generated(arguments.generated)
        test = generated(1000, seed=1)
    else:
        data = ms.FashionMNISTDataset(split="train").as_array_dict()
        test = ms.FashionMNISTDataset(split="test").as_array_dict()
    test["image"] = test["image"] / np.float32(255)
    train(data, test, arguments.epochs)


if __name__ == "__main__":
    main()
