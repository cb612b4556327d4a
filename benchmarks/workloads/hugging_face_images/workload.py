"""Shuffled batches of PNG images in a Hugging Face data set, decoded by one thread.

A contender has one stream of batches in a Python loop with a jitted step, and a round
takes the next 100 of them.
"""

import io
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import PIL.Image
from datasets import Dataset, Features, Image, Value, load_from_disk

from dataset import BATCH, CACHE, fashion_mnist
from harness import Task, WrongAnswer

BATCHES = 100  # per round


def masked_fields(item: Any) -> tuple[Any, Any, Any]:
    """Images, row numbers and mask of an item that is a dictionary and a mask."""
    batch, mask = item
    return batch["image"], batch["row"], mask


def fields(item: Any) -> tuple[Any, Any, None]:
    """Images, row numbers and no mask of an item that is a dictionary."""
    return item["image"], item["row"], None


@dataclass(frozen=True)
class Stream:
    """What a contender builds: endless batches, which `unpack` splits into fields."""

    batches: Iterator[Any]
    unpack: Callable[[Any], tuple[Any, Any, Any]] = fields


@jax.jit
def step(image: Any, row: Any, mask: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return row[0] + image[0, 0, 0].astype(np.int32)


def encoded(image: np.ndarray) -> dict[str, Any]:
    """An image as Hugging Face stores it."""
    file = io.BytesIO()
    PIL.Image.fromarray(image).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def saved() -> Path:
    """The folder of the data set, written once."""
    folder = CACHE / "hugging_face-fashion-mnist-png"
    if not folder.exists():
        temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
        image = fashion_mnist().image
        columns = {"image": list(map(encoded, image)), "row": range(len(image))}
        features = Features({"image": Image(), "row": Value("int64")})
        Dataset.from_dict(columns, features).save_to_disk(temporary, num_shards=1)
        try:
            temporary.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(temporary)
    return folder


def check(stream: Stream) -> None:
    """Raises unless the first batches have the right images, shuffled, none twice."""
    truth = fashion_mnist().image
    taken = [stream.unpack(item) for item in islice(stream.batches, BATCHES)]
    image = np.concatenate([np.asarray(image) for image, _, _ in taken])
    row = np.concatenate([np.asarray(row) for _, row, _ in taken])
    if image.dtype != np.uint8 or not np.array_equal(image, truth[row]):
        raise WrongAnswer("other images than those of the rows")
    if len(np.unique(row)) != len(row):
        raise WrongAnswer("rows that come twice")
    if np.ptp(row[:BATCH]) < len(truth) // 2:
        raise WrongAnswer("rows that are close to each other instead of shuffled")


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches of the stream. A round takes the next ones."""
    stream: Stream = contender.build(load_from_disk(saved()))
    check(stream)

    def run() -> None:
        unpack, done = stream.unpack, None
        for item in islice(stream.batches, BATCHES):
            done = step(*unpack(item))
        jax.block_until_ready(done)

    return Task(BATCHES * BATCH, run)
