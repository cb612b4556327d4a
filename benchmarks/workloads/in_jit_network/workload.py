"""An epoch of training: the SGD step of the network in the JAX tutorial."""

from itertools import pairwise
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from dataset import SCALE, fashion_mnist
from harness import Task, WrongAnswer
from workloads.in_jit.workload import check

SIZES = (784, 512, 512, 10)
RATE = 0.01
JUDGED = 5000


def initial() -> list[tuple[jax.Array, jax.Array]]:
    """Random weights and zero biases, the same for every contender."""
    keys = jax.random.split(jax.random.PRNGKey(0), len(SIZES) - 1)
    return [
        (0.01 * jax.random.normal(key, shape), jnp.zeros(shape[1]))
        for key, shape in zip(keys, pairwise(SIZES), strict=True)
    ]


def loss(params: Any, image: Any, label: Any, mask: Any) -> jax.Array:
    """The mean cross entropy of the valid rows."""
    hidden = image.reshape(len(label), -1).astype(jnp.float32) * SCALE
    for weights, bias in params[:-1]:
        hidden = jax.nn.relu(hidden @ weights + bias)
    weights, bias = params[-1]
    logits = hidden @ weights + bias
    chosen = jnp.sum(logits * jax.nn.one_hot(label, SIZES[-1]), axis=1)
    return jnp.mean(logsumexp(logits, axis=1) - chosen, where=mask)


def update(params: Any, image: Any, label: Any, mask: Any) -> tuple[Any, None]:
    """The body: one step of gradient descent."""
    gradients = jax.grad(loss)(params, image, label, mask)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), None


def prepare(contender: ModuleType) -> Task:
    """Checks an epoch of the contender, and that training reduces the loss."""
    data = fashion_mnist()
    samples = check(contender, data)
    epoch = contender.build(data, update)
    params, _ = epoch.run(initial())
    some = data.image[:JUDGED], data.label[:JUDGED], None
    before, after = loss(initial(), *some), loss(params, *some)
    if not after < before:
        raise WrongAnswer(f"the loss went from {before} to {after}")
    return Task(samples, lambda: epoch.run(params))
