"""What each section of the tutorial defines, and how it is run."""

from __future__ import annotations

import collections
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from network import init_network_params, layer_sizes, train_model


@dataclass(frozen=True)
class Loader:
    """One way to load the data: the arguments of `train_model` for it."""

    name: str
    training_generator: Any
    data_loader_type: str


@dataclass(frozen=True)
class Section:
    """A data set with several loaders. The first is the tutorial's.

    `evaluation` is (train images, train labels, test images, test labels).
    """

    title: str
    evaluation: tuple[Any, Any, Any, Any]
    loaders: list[Loader]


def train(section, num_epochs):
    """Trains the network through each loader. Returns `{name: history}`.

    The loaders take turns, one epoch each, so that other programs on the machine slow
    them down alike. Raises `AssertionError` unless all loaders lead to the same
    accuracies and the same parameters, to the bit.
    """
    first = init_network_params(layer_sizes, jax.random.PRNGKey(0))
    params = {loader.name: first for loader in section.loaders}
    histories = {loader.name: [] for loader in section.loaders}
    for epoch in range(num_epochs):
        for loader in section.loaders:
            print(f"{loader.name}: ", end="")
            params[loader.name], history = train_model(
                1,
                params[loader.name],
                loader.training_generator,
                section.evaluation,
                loader.data_loader_type,
                epoch,
            )
            histories[loader.name] += history
        check_equal(params, histories)
    return histories


def check_equal(params, histories):
    """Raises `AssertionError` unless the loaders have trained the same network."""
    expected, *others = params
    for name in others:
        both = f"{expected} and {name}"
        found = [[epoch[1:] for epoch in histories[x]] for x in (expected, name)]
        assert found[0] == found[1], f"accuracies of {both}: {found}"
        leaves = [jax.tree.leaves(params[x]) for x in (expected, name)]
        for a, b in zip(*leaves, strict=True):
            same = np.asarray(a).tobytes() == np.asarray(b).tobytes()
            assert same, f"{both} have trained different parameters"


def batches(loader):
    """An iterable over the batches of one epoch."""
    if loader.data_loader_type == "streamed":
        return loader.training_generator()
    return loader.training_generator


def load(section, rounds):
    """Loads epochs without training, in turns. Returns `{name: seconds}`."""
    seconds = {loader.name: [] for loader in section.loaders}
    for _ in range(rounds):
        for loader in section.loaders:
            start = time.perf_counter()
            last = collections.deque(batches(loader), maxlen=1)
            jax.block_until_ready(list(last))
            seconds[loader.name].append(time.perf_counter() - start)
    return seconds
