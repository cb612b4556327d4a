"""Images of 224 x 224 x 3 in memory, normalised by channel and given to a jitted step.

The step receives float32 and uses one element of it. If XLA normalises, a jitted
function of its own returns the batch. So XLA must write the whole batch and cannot skip
what the step ignores.
"""

from types import ModuleType
from typing import Any

import numpy as np

import streams
from harness import Task, WrongAnswer
from streams import Question

IMAGES, SIDE = 2000, 224
BATCH = 64
SHAPE = SIDE, SIDE, 3
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
FACTOR, OFFSET = np.float32(1 / 255) / STD, -MEAN / STD
"""`(pixel / 255 - MEAN) / STD` as one multiplication and one addition."""

ROW_FACTOR, ROW_OFFSET = np.tile(FACTOR, SIDE), np.tile(OFFSET, SIDE)
"""The same for the 672 numbers of a row, which libraries vectorise better."""


def images() -> np.ndarray:
    """Random images. The first two numbers of each image are its index."""
    made = np.random.default_rng(0).integers(256, size=(IMAGES, *SHAPE), dtype=np.uint8)
    made[:, 0, 0, 0] = np.arange(IMAGES) % 256
    made[:, 0, 0, 1] = np.arange(IMAGES) // 256
    return made


def recogniser(data: np.ndarray, mean: Any, std: Any) -> Any:
    """A function that finds the numbers of the images of a batch."""

    def numbers(batch: Any) -> np.ndarray:
        found = np.asarray(batch)
        if found.shape != (BATCH, *SHAPE) or found.dtype != np.float32:
            raise WrongAnswer(f"a batch that is {found.dtype}{list(found.shape)}")
        first = np.rint((found[:, 0, 0, :2] * std[:2] + mean[:2]) * 255).astype(int)
        which = (first[:, 0] + first[:, 1] * 256).clip(0, IMAGES - 1)
        for image, number in zip(found, which, strict=True):
            wanted = (data[number] / np.float32(255) - mean) / std
            if not np.abs(image - wanted).max() <= 1e-5:
                raise WrongAnswer("values that are not those of a normalised image")
        return which

    return numbers


def gathered(data: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The normalised batch of these images, made with NumPy.

    It works on one image at a time, which fits in the processor's cache and avoids a
    uint8 copy of the batch.
    """
    batch = np.empty((BATCH, *SHAPE), np.float32)
    for image, number in zip(batch, chosen, strict=True):
        row = image.reshape(SIDE, -1)
        np.multiply(data[number].reshape(SIDE, -1), ROW_FACTOR, out=row)
        np.add(row, ROW_OFFSET, out=row)
    return batch


def step(carry: Any, batch: Any) -> Any:
    """The minimal training step: it receives the normalised images."""
    return carry + batch[0, 0, 0, 0].astype(np.int32)


def prepare(contender: ModuleType) -> Task:
    """Checks two epochs of the contender. A round is an epoch.

    A contender may define its own `MEAN` and `STD`.
    """
    data = images()
    mean = getattr(contender, "MEAN", MEAN)
    std = getattr(contender, "STD", STD)
    per_epoch = IMAGES // BATCH
    question = Question(
        *(IMAGES, BATCH, recogniser(data, mean, std), step),
        checked=2 * per_epoch,
        round=per_epoch,
    )
    return streams.prepare(contender.build(data), question)
