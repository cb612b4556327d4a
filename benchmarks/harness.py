"""What every workload shares: the check of the answers, and the clock."""

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dataset import BATCH, SCALE, Arrays

WEIGHTS = np.random.default_rng(0).integers(2**32, size=784, dtype=np.uint32) | 1
LABEL_WEIGHT = np.uint32(2654435761)


class WrongAnswer(Exception):
    """A contender that does not yield every record exactly once is not timed."""


@dataclass(frozen=True)
class Measurement:
    """Seconds of each repetition over so many samples, and other numbers seen."""

    samples: int
    seconds: list[float]
    variant: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The measurement as plain values for JSON."""
        return asdict(self)


def fingerprints(image: Any, label: Any) -> Any:
    """One uint32 a row of NumPy or JAX arrays, by which rows are recognised."""
    flat = image.reshape(image.shape[0], -1).astype(np.uint32)
    return (flat * WEIGHTS).sum(axis=1, dtype=np.uint32) + (
        label.astype(np.uint32) * LABEL_WEIGHT
    )


def as_pixels(image: np.ndarray) -> np.ndarray:
    """Normalised images as the uint8 they came from; refuses any other values."""
    if image.dtype != np.float32:
        raise WrongAnswer(f"normalised images are {image.dtype}, not float32")
    pixels = np.rint(image * 255)
    if not np.allclose(image, pixels * SCALE, rtol=0, atol=1e-6):
        raise WrongAnswer("normalised values differ from pixel / 255")
    return pixels.astype(np.uint8)


def check_once(
    seen: np.ndarray, data: Arrays, *, complete: bool = True, shuffled: bool = True
) -> None:
    """Passes if the rows of fingerprints `seen` are an epoch of `data`.

    An epoch holds every record once; its incomplete last batch may be dropped.
    A part of an epoch (`complete=False`) holds no record twice.
    """
    source = fingerprints(data.image, data.label)
    rest = len(source) % BATCH
    if complete and len(seen) not in (len(source), len(source) - rest):
        raise WrongAnswer(f"{len(seen)} records instead of {len(source)}")
    known, available = np.unique(source, return_counts=True)
    found, used = np.unique(seen, return_counts=True)
    place = np.searchsorted(known, found).clip(max=len(known) - 1)
    if not np.array_equal(known[place], found):
        raise WrongAnswer("records that are not in the dataset")
    if np.any(used > available[place]):
        raise WrongAnswer("records that come twice")
    if shuffled and np.array_equal(seen[:BATCH], source[:BATCH]):
        raise WrongAnswer("records in the order of the source instead of shuffled")


def seconds_of(
    run: Callable[[], object], *, least: int = 2, most: int = 1000, enough: float = 0.5
) -> list[float]:
    """Seconds of each call of `run`, at least so many that add up to enough.

    Slow calls are not repeated beyond four times what is enough, quick ones not more
    often than `most`.
    """
    gc.collect()
    times: list[float] = []
    while len(times) < least or (sum(times) < enough and len(times) < most):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        if sum(times) > 4 * enough:
            break
    return times
