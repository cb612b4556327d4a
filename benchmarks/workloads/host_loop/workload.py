"""A Python loop that passes each batch of an epoch to a jitted step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import fashion_mnist
from harness import Task, WrongAnswer, as_pixels, check_once, fingerprints

EPOCHS = 2  # per round


def pair(item: Any) -> tuple[Any, Any, None]:
    """Image, label and no mask of an item that is a pair."""
    image, label = item
    return image, label, None


def fields(item: Any) -> tuple[Any, Any, None]:
    """Image, label and no mask of an item that is a dictionary."""
    return item["image"], item["label"], None


def masked_fields(item: Any) -> tuple[Any, Any, Any]:
    """Image, label and mask of an item that is a dictionary and a mask."""
    batch, mask = item
    return batch["image"], batch["label"], mask


@dataclass(frozen=True)
class Loop:
    """What a contender builds: `epoch()` yields items that `unpack` splits.

    `unpack` returns image, label and mask. A limit may leave out passing batches to JAX
    (`reaches_jax=False`) and shuffling.
    """

    epoch: Callable[[], Iterable[Any]]
    unpack: Callable[[Any], tuple[Any, Any, Any]] = pair
    reaches_jax: bool = True
    shuffled: bool = True


@jax.jit
def step(image: Any, label: Any, mask: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return label[0] + image[0, 0, 0].astype(np.int32)


@jax.jit
def received(image: Any, label: Any, mask: Any) -> Any:
    """Returns the batch as the step receives it."""
    return image, label, mask


def run(loop: Loop) -> None:
    """Runs the epochs of a round as a user's loop would."""
    unpack, done = loop.unpack, None
    for _ in range(EPOCHS):
        if loop.reaches_jax:
            for item in loop.epoch():
                done = step(*unpack(item))
        else:
            for item in loop.epoch():
                done = item
    jax.block_until_ready(done)


def rows(batch: Any, *, normalize: bool, label_dtype: Any) -> np.ndarray:
    """The fingerprints of the valid rows of a batch."""
    image, label, mask = (None if x is None else np.asarray(x) for x in batch)
    if image.shape[1:] != (28, 28) or label.dtype != label_dtype:
        raise WrongAnswer(f"image{image.shape} with labels of {label.dtype}")
    image = as_pixels(image) if normalize else image
    if image.dtype != np.uint8:
        raise WrongAnswer(f"images are {image.dtype}, not uint8")
    seen = fingerprints(image, label)
    return seen if mask is None else seen[mask]


def prepare(
    contender: ModuleType, *, normalize: bool = False, label_dtype: Any = np.int32
) -> Task:
    """Checks that two epochs of the contender are complete.

    The batches are checked after the end of their epoch, to find a contender that
    overwrites memory that JAX still uses.
    """
    data = fashion_mnist()
    loop: Loop = contender.build(data, normalize=normalize)
    expected = {"normalize": normalize, "label_dtype": label_dtype}
    samples = 0
    for _ in range(2):
        batches = map(loop.unpack, loop.epoch())
        if loop.reaches_jax:
            batches = [received(*batch) for batch in batches]
        seen = np.concatenate([rows(batch, **expected) for batch in batches])
        del batches
        check_once(seen, data, shuffled=loop.shuffled)
        samples = len(seen)
    return Task(samples * EPOCHS, lambda: run(loop))
