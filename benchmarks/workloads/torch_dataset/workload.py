"""Epochs of a light torch data set in a Python loop with a jitted step."""

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


def masked(item: Any) -> tuple[Any, Any, Any, Any]:
    """Image, float, int and mask of a batch and its mask."""
    batch, mask = item
    return *batch, mask


@dataclass(frozen=True)
class Loop:
    """What a contender builds: `epoch()` yields items, `unpack` names their parts."""

    epoch: Callable[[], Iterable[Any]]
    unpack: Callable[[Any], tuple[Any, Any, Any, Any]] = triple


@jax.jit
def step(image: Any, weight: Any, label: Any, mask: Any) -> Any:
    """The least that a training step does: it receives the batch."""
    return label[0] + weight[0] + image[0, 0, 0, 0]


@jax.jit
def received(image: Any, weight: Any, label: Any, mask: Any) -> Any:
    """The batch as the step receives it."""
    return image, weight, label, mask


def check(loop: Loop, images: Images) -> None:
    """Passes if an epoch holds every sample once, intact and shuffled.

    The batches are looked at after the epoch has ended: what JAX holds must not
    change when the contender makes the next batch.
    """
    batches = [received(*loop.unpack(item)) for item in loop.epoch()]
    kept = []
    for *fields, mask in batches:
        valid = slice(None) if mask is None else np.asarray(mask)
        kept.append([np.asarray(field)[valid] for field in fields])
    image, weight, label = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    dtypes = [field.dtype.name for field in (image, weight, label)]
    if dtypes != ["float32", "float32", "int32"]:
        raise WrongAnswer(f"batches of {', '.join(dtypes)}")
    if not np.array_equal(np.sort(label), np.arange(len(images))):
        raise WrongAnswer("not every sample once")
    if not np.array_equal(weight, label / np.float32(4)):
        raise WrongAnswer("floats of other samples than their ints")
    if not np.array_equal(image, images.image.numpy()[label]):
        raise WrongAnswer("images of other samples than their ints")
    if np.array_equal(label[:BATCH], np.arange(BATCH)):
        raise WrongAnswer("samples in the order of the source instead of shuffled")


def prepare(contender: ModuleType) -> Task:
    """Checks an epoch of the contender, and then another. A round is an epoch."""
    images = Images()
    loop: Loop = contender.build(images)
    for _ in range(2):
        check(loop, images)

    def run() -> None:
        unpack, done = loop.unpack, None
        for item in loop.epoch():
            done = step(*unpack(item))
        jax.block_until_ready(done)

    return Task(len(images), run)
