"""Millstream with a torch data set, so each worker imports torch, but not JAX."""

from typing import Any

import millstream as ms

from dataset import BATCH
from functions import WORKERS
from started_with_torch import Numbered


def first_batch() -> tuple[Any, Any]:
    """The first batch, and how to end the workers."""
    source = ms.DatasetSource(Numbered(), workers=WORKERS, worker_kind="process")
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH)])
    batch, _ = next(loader.run(seed=0, epochs=1))
    return batch, source.close
