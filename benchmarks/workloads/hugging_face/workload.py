"""Shuffled batches of a Hugging Face data set in a Python loop with a jitted step.

The data set is a memory map of an Arrow file. Each contender has one stream of batches,
and a round takes the next 1,000 of them. All rounds of a run lie within one epoch, so
they do not include making the order of an epoch.
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
LIMIT = 1 << 24  # whole numbers below it are exact in float32
BATCHES = 1000  # of a round


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
    """What a contender builds: batches of epoch after epoch, and what they hold."""

    batches: Iterator[Any]
    unpack: Callable[[Any], tuple[Any, Any, Any]] = pair


@jax.jit
def step(x: Any, label: Any, mask: Any) -> Any:
    """The least that a training step does: it receives the batch."""
    return label[0] + x[0, 0].astype(np.int32)


@jax.jit
def received(x: Any, label: Any, mask: Any) -> Any:
    """The batch as the step receives it."""
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

    The run that writes it shows a larger peak of memory.
    """
    folder = CACHE / f"hugging_face-{ROWS}x{COLUMNS}"
    if not folder.exists():
        own = folder.with_name(f"{folder.name}.{os.getpid()}")
        table = table_of(np.arange(ROWS, dtype=np.int64))
        Dataset(table).save_to_disk(own, num_shards=1)
        try:
            own.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(own)
    return folder


def check(stream: Stream) -> None:
    """Passes if the first batches are shuffled, intact, and hold no row twice.

    They are looked at after the last of them was delivered: what JAX holds must not
    change when the contender makes the next batch.
    """
    taken = islice(stream.batches, BATCHES)
    kept = [received(*stream.unpack(item)) for item in taken]
    x, label = (np.concatenate(parts) for parts in zip(*kept, strict=True))
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
    """Checks the first batches of the stream. A round takes as many of the next."""
    stream: Stream = contender.build(load_from_disk(saved()))
    check(stream)

    def run() -> None:
        unpack, done = stream.unpack, None
        for item in islice(stream.batches, BATCHES):
            done = step(*unpack(item))
        jax.block_until_ready(done)

    return Task(BATCHES * BATCH, run)
