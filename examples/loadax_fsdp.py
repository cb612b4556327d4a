"""Trains a model with the interface of Loadax and fully sharded weights (FSDP).

The loop is the distributed loop of Loadax's documentation. A mesh has one axis for the
rows of batches and one for the weights. Each process loads its shard of the data, and
`distribute_global_batch` makes global arrays from it. Each device holds a part of every
weight and of the optimiser's state. XLA gathers the weights of a layer when it needs
them. After 20 epochs the loss is below 0.02.

This command simulates eight devices on the CPU:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/loadax_fsdp.py
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from millstream.loadax import (
    Batcher,
    DataLoader,
    MappedDataset,
    RangeDataset,
    ShuffledDataset,
    fsdp_sharding,
)

FEATURES, HIDDEN, LOSS = 16, 64, 0.02


def example(index):
    """An input and the value of a fixed function of it."""
    x = np.random.default_rng(index).uniform(-1, 1, FEATURES).astype(np.float32)
    return {"x": x, "y": np.sin(3 * x[0]) + x[1] * x[2]}


def sharded(x, mesh):
    """Splits a weight over all devices, along the first axis that they divide."""
    for axis, extent in enumerate(x.shape):
        if extent % mesh.size == 0:
            spec = P(*[None] * axis, mesh.axis_names)
            return jax.device_put(x, NamedSharding(mesh, spec))
    return jax.device_put(x, NamedSharding(mesh, P()))


def create_model(mesh, key):
    """The weights and the state of the optimiser (Adam), both sharded."""
    shapes = {"a": (FEATURES, HIDDEN), "b": (HIDDEN,), "c": (HIDDEN, HIDDEN)}
    shapes |= {"d": (HIDDEN,), "e": (HIDDEN,)}
    weights = {}
    for name, each in zip(shapes, jax.random.split(key, len(shapes)), strict=True):
        scale = shapes[name][0] ** -0.5
        weights[name] = sharded(scale * jax.random.normal(each, shapes[name]), mesh)
    mean, square = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    return weights, (mean, square, 0)


def loss_of(weights, batch):
    """The mean squared error of a small network."""
    x = jnp.tanh(batch["x"] @ weights["a"] + weights["b"])
    x = jnp.tanh(x @ weights["c"] + weights["d"])
    return jnp.mean((x @ weights["e"] - batch["y"]) ** 2)


def train_step(weights, optimizer, batch, rate=0.005):
    """One step of Adam. The results have the shardings of the arguments."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    mean, square, count = optimizer
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
    square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradients)
    count = count + 1
    first, second = 1 - 0.9**count, 1 - 0.99**count

    def moved(w, m, s):
        return w - rate * (m / first) / (jnp.sqrt(s / second) + 1e-8)

    weights = jax.tree.map(moved, weights, mean, square)
    return weights, (mean, square, count), loss


def train(epochs, samples, batch_size=256):
    """Trains, and returns the mean loss of each epoch and the weights."""
    mesh, _ = fsdp_sharding(num_data_shards=max(jax.device_count() // 2, 1))
    dataset = ShuffledDataset(MappedDataset(RangeDataset(0, samples), example), 0)
    dataloader = (
        DataLoader(Batcher.stack(), drop_last=True)
        .batch_size(batch_size)
        .workers(2)
        .prefetch(2)
        .shard(mesh, data_axis_name="data")
        .build(dataset)
    )
    weights, optimizer = create_model(mesh, jax.random.key(0))
    step = jax.jit(train_step, donate_argnums=(0, 1))
    losses = []
    for epoch in range(epochs):
        steps = []
        for local_batch in dataloader.at_epoch(epoch):
            batch = dataloader.sharding_strategy.distribute_global_batch(local_batch)
            weights, optimizer, loss = step(weights, optimizer, batch)
            steps.append(loss)
        losses.append(float(np.mean(jax.device_get(steps))))
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(weights))
    whole = sum(x.nbytes for x in jax.tree.leaves(weights))
    print(f"a device holds {held:,} of {whole:,} bytes of weights")
    return losses, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=4096)
    arguments = parser.parse_args()
    losses, _ = train(arguments.epochs, arguments.samples)
    if losses[-1] > LOSS:
        raise SystemExit(f"expected a loss of at most {LOSS}, found {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
