"""Shuffled batches of a Hugging Face data set in a Python loop with a jitted step.

The data set is a memory map of an Arrow file. Each contender has one stream of batches,
and a round takes the next 1,000 of them. All rounds of a run are in one epoch, so they
do not include the time to shuffle an epoch.
"""

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
import pyarrow as pa
from datasets import Dataset, load_from_disk

from dataset import BATCH, CACHE
from harness import Task, WrongAnswer

ROWS, COLUMNS = 1_000_000, 64
LIMIT = 1 << 24  # float32 represents all integers below this exactly
BATCHES = 1000  # per round


def pair(item: Any) -> tuple[Any, Any, None]:
    """Features, label and no mask of an item that is a pair."""
    x, label = item
    return x, label, None


def masked_fields(item: Any) -> tuple[Any, Any, Any]:
    """Features, label and mask of an item that is a dictionary and a mask."""
    batch, mask = item
    return batch["x"], batch["label"], mask


@dataclass(frozen=True)
class Stream:
    """What a contender builds: endless batches, which `unpack` splits into fields."""

    batches: Iterator[Any]
    unpack: Callable[[Any], tuple[Any, Any, Any]] = pair


@jax.jit
def step(x: Any, label: Any, mask: Any) -> Any:
    """The minimal training step: it receives the batch."""
    return label[0] + x[0, 0].astype(np.int32)


@jax.jit
def received(x: Any, label: Any, mask: Any) -> Any:
    """Returns the batch as the step receives it."""
    return x, label


def features_of(label: np.ndarray) -> np.ndarray:
    """The features of the rows that have these labels: row i has label i."""
    first = label.astype(np.int64)[:, None] * COLUMNS
    return ((first + np.arange(COLUMNS)) % LIMIT).astype(np.float32)


def table_of(label: np.ndarray) -> pa.Table:
    """The rows that have these labels."""
    values = pa.array(features_of(label).ravel())
    x = pa.FixedSizeListArray.from_arrays(values, COLUMNS)
    return pa.table({"x": x, "label": label})


def saved() -> Path:
    """The folder of the data set, written once.

    The process that writes it has a higher peak memory.
    """
    folder = CACHE / f"hugging_face-{ROWS}x{COLUMNS}"
    if not folder.exists():
        temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
        table = table_of(np.arange(ROWS, dtype=np.int64))
        Dataset(table).save_to_disk(temporary, num_shards=1)
        try:
            temporary.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(temporary)
    return folder


def check(stream: Stream) -> None:
    """Raises unless the first batches have correct, shuffled rows, none twice.

    The batches are checked after the last of them was delivered, to find a contender
    that overwrites memory that JAX still uses.
    """
    taken = islice(stream.batches, BATCHES)
    batches = [received(*stream.unpack(item)) for item in taken]
    x, label = (np.concatenate(field) for field in zip(*batches, strict=True))
    if (x.dtype, label.dtype) != (np.float32, np.int32):
        raise WrongAnswer(f"features of {x.dtype} with labels of {label.dtype}")
    if x.shape != (BATCHES * BATCH, COLUMNS) or label.shape != (BATCHES * BATCH,):
        raise WrongAnswer(f"features{list(x.shape)} with labels{list(label.shape)}")
    if label.min() < 0 or label.max() >= ROWS:
        raise WrongAnswer("labels that are not in the data set")
    if not np.array_equal(x, features_of(label)):
        raise WrongAnswer("features of other rows than their labels")
    if len(np.unique(label)) != len(label):
        raise WrongAnswer("rows that come twice")
    if np.ptp(label[:BATCH]) < ROWS // 2:
        raise WrongAnswer("rows that are close to each other instead of shuffled")


def prepare(contender: ModuleType) -> Task:
    """Checks the first batches of the stream. A round takes the next 1,000."""
    stream: Stream = contender.build(load_from_disk(saved()))
    check(stream)

    def run() -> None:
        unpack, done = stream.unpack, None
        for item in islice(stream.batches, BATCHES):
            done = step(*unpack(item))
        jax.block_until_ready(done)

    return Task(BATCHES * BATCH, run)
