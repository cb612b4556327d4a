"""Batches of an epoch handed to a Python loop as JAX arrays."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np

from dataset import fashion_mnist
from harness import (
    Measurement,
    WrongAnswer,
    as_pixels,
    check_once,
    fingerprints,
    seconds_of,
)


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
    """What a contender builds: `epoch()` yields items, `deliver` makes JAX arrays.

    `unpack` names the parts of an item, before or after delivery. A contender whose
    items are JAX arrays already has no `deliver`. A limit may stop short of JAX
    (`reaches_jax=False`), and the very slow may run a part of an epoch.
    """

    epoch: Callable[[], Iterable[Any]]
    unpack: Callable[[Any], tuple[Any, Any, Any]] = pair
    deliver: Callable[[Any], Any] | None = jax.device_put
    reaches_jax: bool = True
    complete: bool = True
    shuffled: bool = True

    def run(self) -> int:
        """Runs an epoch as a user's loop does and returns the number of batches."""
        batches = 0
        delivered = None
        if self.deliver is None:
            for item in self.epoch():
                delivered = item
                batches += 1
        else:
            deliver = self.deliver
            for item in self.epoch():
                delivered = deliver(item)
                batches += 1
        jax.block_until_ready(delivered)
        return batches


def rows(loop: Loop, item: Any, *, normalize: bool, label_dtype: Any) -> np.ndarray:
    """The fingerprints of the valid rows of one delivered item."""
    image, label, mask = loop.unpack(item)
    if loop.reaches_jax and not all(isinstance(x, jax.Array) for x in (image, label)):
        raise WrongAnswer("batches that are not JAX arrays")
    image, label = np.asarray(image), np.asarray(label)
    if image.shape[1:] != (28, 28) or label.dtype != label_dtype:
        raise WrongAnswer(f"image{image.shape} with labels of {label.dtype}")
    image = as_pixels(image) if normalize else image
    if image.dtype != np.uint8:
        raise WrongAnswer(f"images are {image.dtype}, not uint8")
    seen = fingerprints(image, label)
    return seen if mask is None else seen[np.asarray(mask)]


def measure(
    contender: ModuleType, *, normalize: bool = False, label_dtype: Any = np.int32
) -> list[Measurement]:
    """Checks an epoch of the contender, then times epochs of it.

    What was delivered is looked at after the epoch has ended: batches in JAX's hands
    must not change when the contender makes the next.
    """
    data = fashion_mnist()
    loop = contender.build(data)
    items = map(loop.deliver, loop.epoch()) if loop.deliver else loop.epoch()
    kept = list(items) if loop.reaches_jax else items
    expected = {"normalize": normalize, "label_dtype": label_dtype}
    seen = [rows(loop, item, **expected) for item in kept]
    del kept
    check_once(
        np.concatenate(seen), data, complete=loop.complete, shuffled=loop.shuffled
    )
    if (batches := loop.run()) != len(seen):
        raise WrongAnswer(f"{len(seen)} batches, then {batches} in the next epoch")
    return [Measurement(sum(map(len, seen)), seconds_of(loop.run))]
