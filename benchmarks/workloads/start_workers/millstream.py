"""Millstream with a function whose module imports only NumPy.

A worker imports the engine, NumPy and the module of the function.
"""

from collections.abc import Callable
from typing import Any

import millstream as ms

from dataset import BATCH
from functions import WORKERS
from started import SAMPLES, numbered


def first_batch(function: Callable[[int], Any] = numbered) -> tuple[Any, Any]:
    """The first batch, and how to end the workers."""
    source = ms.DiskSampleSource(
        SAMPLES, function, workers=WORKERS, worker_kind="process"
    )
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH)])
    batch, _ = next(loader.run(seed=0, epochs=1))
    return batch, source.close
