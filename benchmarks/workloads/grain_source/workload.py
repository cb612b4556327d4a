"""Epochs of a data source with `__len__` and `__getitem__`, as Grain takes it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import BATCH, fashion_mnist
from harness import Task, WrongAnswer

SAMPLES = 30_000


class Digits:
    """The class of the JAX AI stack's tutorial: an image as float32[784] and an int.

    The int is the index of the sample, which identifies it.
    """

    def __init__(self) -> None:
        self.images = fashion_mnist().image[:SAMPLES]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.ravel(np.array(self.images[index], dtype=np.float32)), int(index)


@dataclass(frozen=True)
class Loop:
    """What a contender builds: `epoch()` yields pairs of images and labels."""

    epoch: Callable[[], Iterable[Any]]


@jax.jit
def step(image: Any, label: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return label[0] + image[0, 0]


@jax.jit
def received(image: Any, label: Any) -> Any:
    """Returns the batch as the step receives it."""
    return image, label


def check(loop: Loop, digits: Digits) -> None:
    """Raises unless an epoch has every sample once, correct and shuffled.

    The batches are checked after the end of the epoch, to find a contender that
    overwrites memory that JAX still uses.
    """
    batches = [received(*item) for item in loop.epoch()]
    image, label = map(np.concatenate, zip(*batches, strict=True))
    if [image.dtype.name, label.dtype.name] != ["float32", "int32"]:
        raise WrongAnswer(f"batches of {image.dtype} and {label.dtype}")
    if not np.array_equal(np.sort(label), np.arange(len(digits))):
        raise WrongAnswer("an epoch that does not have every sample once")
    if not np.array_equal(image, digits.images[label].reshape(len(label), -1)):
        raise WrongAnswer("images of other samples than their ints")
    if np.array_equal(label[:BATCH], np.arange(BATCH)):
        raise WrongAnswer("samples in the order of the source instead of shuffled")


def prepare(contender: ModuleType) -> Task:
    """Checks two epochs of the contender. A round is an epoch."""
    digits = Digits()
    loop: Loop = contender.build(digits)
    for _ in range(2):
        check(loop, digits)

    def run() -> None:
        done = None
        for item in loop.epoch():
            done = step(*item)
        jax.block_until_ready(done)

    return Task(len(digits), run)
