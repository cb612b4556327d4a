"""Trains a small network on Fashion-MNIST, with one jitted scan per epoch.

Prints the accuracy and the samples per second after each epoch. The time of the first
epoch includes compilation. With --numpy it also trains the same network with a loop
that indexes NumPy arrays, for comparison.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np

SIZES = (784, 512, 512, 10)
BATCH = 128
STEP_SIZE = 0.1


def init_params(key):
    """A (weights, bias) pair for each layer."""
    keys = jax.random.split(key, len(SIZES) - 1)
    shapes = zip(SIZES, SIZES[1:], keys, strict=False)
    return [
        (jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, jnp.zeros(n))
        for m, n, k in shapes
    ]


def predict(params, images):
    """Log-probabilities of the ten classes."""
    x = images.reshape(len(images), -1)
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = params[-1]
    return jax.nn.log_softmax(x @ weights + bias)


def loss(params, batch, mask):
    """The mean cross entropy of the rows that are not padding."""
    scores = predict(params, batch["image"])
    chosen = jnp.take_along_axis(scores, batch["label"][:, None], axis=1)[:, 0]
    return -jnp.sum(chosen * mask) / jnp.sum(mask)


def update(params, batch, mask):
    """One step of gradient descent, and the loss before it."""
    value, grads = jax.value_and_grad(loss)(params, batch, mask)
    return jax.tree.map(lambda p, g: p - STEP_SIZE * g, params, grads), value


@jax.jit
def accuracy(params, images, labels):
    """The fraction of images that are classified correctly."""
    return jnp.mean(jnp.argmax(predict(params, images), axis=1) == labels)


def pipeline(data, batch_size=BATCH):
    """A loader of shuffled, normalised batches."""
    return ms.DataLoader(
        [
            ms.ArraySampleSource(data, ordering="shuffle"),
            ms.NormalizeImageTransform("image"),
            ms.BatchTransform(batch_size),
            ms.DevicePutTransform(),
        ]
    )


def train(data, test, epochs, seed=0):
    """Trains with one jitted scan per epoch; returns the accuracies."""
    loader = pipeline(data)
    print(loader.explain())

    state, params = loader.init_state(seed), init_params(jax.random.key(seed))
    scores = []
    for epoch in range(epochs):
        start = time.perf_counter()
        state, params, losses = loader.scan_epoch(state, params, update, progress=True)
        seconds = time.perf_counter() - start
        scores.append(float(accuracy(params, test["image"], test["label"])))
        print(
            f"epoch {epoch}: loss {losses.mean():.4f}, accuracy {scores[-1]:.4f}, "
            f"{len(data['label']) / seconds:,.0f} samples/s"
        )
    return scores


def train_numpy(data, test, epochs, seed=0):
    """Trains with a loop over NumPy arrays; returns the accuracies."""
    params, step = init_params(jax.random.key(seed)), jax.jit(update)
    rng = np.random.default_rng(seed)
    scores = []
    for epoch in range(epochs):
        start = time.perf_counter()
        order = rng.permutation(len(data["label"]))
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            batch = {"image": data["image"][rows] / np.float32(255)}
            batch["label"] = data["label"][rows]
            params, _ = step(params, batch, np.ones(len(rows), bool))
        jax.block_until_ready(params)
        seconds = time.perf_counter() - start
        scores.append(float(accuracy(params, test["image"], test["label"])))
        print(
            f"NumPy loop, epoch {epoch}: accuracy {scores[-1]:.4f}, "
            f"{len(order) / seconds:,.0f} samples/s"
        )
    return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--numpy", action="store_true", help="also train with a loop over NumPy arrays"
    )
    arguments = parser.parse_args()
    data = ms.FashionMNISTDataset(split="train").as_array_dict()
    test = ms.FashionMNISTDataset(split="test").as_array_dict()
    test["image"] = test["image"] / np.float32(255)
    train(data, test, arguments.epochs)
    if arguments.numpy:
        train_numpy(data, test, arguments.epochs)


if __name__ == "__main__":
    main()
