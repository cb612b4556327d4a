"""The network, the training step and the training loop of the tutorial.

The code is that of "Introduction to Data Loaders on CPU with JAX" of the JAX AI stack.
`train_model` differs in three points. The data to evaluate on and the number of the
first epoch are arguments, the clock stops after the last update has run, and the
function returns what it prints.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
from jax import grad, jit, random, vmap
from jax.scipy.special import logsumexp


def random_layer_params(m, n, key, scale=1e-2):
    """Random weights and biases of one layer."""
    w_key, b_key = random.split(key)
    return scale * random.normal(w_key, (n, m)), scale * random.normal(b_key, (n,))


def init_network_params(sizes, key):
    """Random weights and biases of all layers."""
    keys = random.split(key, len(sizes))
    return [
        random_layer_params(m, n, k)
        for m, n, k in zip(sizes[:-1], sizes[1:], keys, strict=False)
    ]


layer_sizes = [784, 512, 512, 10]
step_size = 0.01
num_epochs = 8
batch_size = 128
n_targets = 10
num_pixels = 28 * 28


def relu(x):
    return jnp.maximum(0, x)


def predict(params, image):
    """The logarithms of the probabilities of the classes, for one image."""
    activations = image
    for w, b in params[:-1]:
        outputs = jnp.dot(w, activations) + b
        activations = relu(outputs)

    final_w, final_b = params[-1]
    logits = jnp.dot(final_w, activations) + final_b
    return logits - logsumexp(logits)


batched_predict = vmap(predict, in_axes=(None, 0))


def one_hot(x, k, dtype=jnp.float32):
    """Create a one-hot encoding of x of size k."""
    return jnp.array(x[:, None] == jnp.arange(k), dtype)


def accuracy(params, images, targets):
    """Calculate the accuracy of predictions."""
    target_class = jnp.argmax(targets, axis=1)
    predicted_class = jnp.argmax(batched_predict(params, images), axis=1)
    return jnp.mean(predicted_class == target_class)


def loss(params, images, targets):
    """Calculate the loss between predictions and targets."""
    preds = batched_predict(params, images)
    return -jnp.mean(preds * targets)


@jit
def update(params, x, y):
    """Update the network parameters using gradient descent."""
    grads = grad(loss)(params, x, y)
    return [
        (w - step_size * dw, b - step_size * db)
        for (w, b), (dw, db) in zip(params, grads, strict=True)
    ]


def reshape_and_one_hot(x, y):
    """Reshape and one-hot encode the inputs."""
    x = jnp.reshape(x, (len(x), num_pixels))
    y = one_hot(y, n_targets)
    return x, y


def train_model(
    num_epochs,
    params,
    training_generator,
    evaluation,
    data_loader_type="streamed",
    first_epoch=0,
):
    """Train the model for a given number of epochs.

    `evaluation` is (train images, train labels, test images, test labels). Returns the
    parameters and (seconds, train accuracy, test accuracy) of each epoch.
    """
    train_images, train_labels, test_images, test_labels = evaluation
    history = []
    for epoch in range(first_epoch, first_epoch + num_epochs):
        start_time = time.time()
        for x, y in (
            training_generator()
            if data_loader_type == "streamed"
            else training_generator
        ):
            x, y = reshape_and_one_hot(x, y)
            params = update(params, x, y)
        jax.block_until_ready(params)
        seconds = time.time() - start_time

        train_accuracy = accuracy(params, train_images, train_labels)
        test_accuracy = accuracy(params, test_images, test_labels)
        print(
            f"Epoch {epoch + 1} in {seconds:.2f} sec: "
            f"Train Accuracy: {train_accuracy:.4f}, "
            f"Test Accuracy: {test_accuracy:.4f}"
        )
        history.append((seconds, float(train_accuracy), float(test_accuracy)))
    return params, history
