"""torch's DataLoader with the same data set and spawned workers.

Forked workers, its default, start sooner, but JAX warns that a process with its threads
must not fork.
"""

from typing import Any

from torch.utils.data import DataLoader

from dataset import BATCH
from functions import WORKERS
from harness import nothing
from started_with_torch import Numbered


def first_batch() -> tuple[Any, Any]:
    """The first batch. The workers end with the iterator."""
    loader = DataLoader(
        Numbered(),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        multiprocessing_context="spawn",
    )
    return next(iter(loader)).numpy(), nothing
