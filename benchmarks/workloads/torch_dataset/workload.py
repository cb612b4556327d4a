"""Epochs of a torch data set with cheap samples, in a loop with a jitted step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import BATCH
from harness import Task, WrongAnswer
from torch_images import Images


def triple(item: Any) -> tuple[Any, Any, Any, None]:
    """Image, float, int and no mask of a batch of tensors, as NumPy views."""
    image, weight, label = item
    return image.numpy(), weight.numpy(), label.numpy(), None


def plain(item: Any) -> tuple[Any, Any, Any, None]:
    """Image, float, int and no mask of a batch of JAX arrays."""
    return *item, None


@dataclass(frozen=True)
class Loop:
    """What a contender builds: `epoch()` yields items that `unpack` splits.

    `unpack` returns image, float, int and mask.
    """

    epoch: Callable[[], Iterable[Any]]
    unpack: Callable[[Any], tuple[Any, Any, Any, Any]] = triple


@jax.jit
def step(image: Any, weight: Any, label: Any, mask: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return label[0] + weight[0] + image[0, 0, 0, 0]


@jax.jit
def received(image: Any, weight: Any, label: Any, mask: Any) -> Any:
    """Returns the batch as the step receives it."""
    return image, weight, label, mask


def check(loop: Loop, images: Images) -> None:
    """Raises unless an epoch has every sample once, correct and shuffled.

    The batches are checked after the end of the epoch, to find a contender that
    overwrites memory that JAX still uses.
    """
    batches = [received(*loop.unpack(item)) for item in loop.epoch()]
    valid_rows = []
    for *fields, mask in batches:
        valid = slice(None) if mask is None else np.asarray(mask)
        valid_rows.append([np.asarray(field)[valid] for field in fields])
    image, weight, label = map(np.concatenate, zip(*valid_rows, strict=True))
    dtypes = [field.dtype.name for field in (image, weight, label)]
    if dtypes != ["float32", "float32", "int32"]:
        raise WrongAnswer(f"batches of {', '.join(dtypes)}")
    if not np.array_equal(np.sort(label), np.arange(len(images))):
        raise WrongAnswer("an epoch that does not have every sample once")
    if not np.array_equal(weight, label / np.float32(4)):
        raise WrongAnswer("floats of other samples than their ints")
    if not np.array_equal(image, images.image.numpy()[label]):
        raise WrongAnswer("images of other samples than their ints")
    if np.array_equal(label[:BATCH], np.arange(BATCH)):
        raise WrongAnswer("samples in the order of the source instead of shuffled")


def prepare(
    contender: ModuleType, dataset_of: Callable[[Images], Any] = lambda images: images
) -> Task:
    """Checks two epochs of the contender. A round is an epoch.

    The contender gets `dataset_of(images)`, which has the same samples.
    """
    images = Images()
    loop: Loop = contender.build(dataset_of(images))
    for _ in range(2):
        check(loop, images)

    def run() -> None:
        unpack, done = loop.unpack, None
        for item in loop.epoch():
            done = step(*unpack(item))
        jax.block_until_ready(done)

    return Task(len(images), run)
