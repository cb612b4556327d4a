"""Measures how long the steps of a Python loop wait for batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from millstream._core.progress_bar import amount_text
from millstream.progress import DATA_LIMIT

if TYPE_CHECKING:
    from millstream._run.stream import Built

_MAX_STEPS = 1024

Step = tuple[float | None, float, float]
"""When a loop got its previous batch (None for the first), requested one and got it."""


def recent_steps() -> deque[Step]:
    """Returns an empty list of the last steps. Older steps are dropped."""
    return deque(maxlen=_MAX_STEPS)


@dataclass(frozen=True)
class Stats:
    """What a loader has delivered, and how long Python loops waited for it.

    Every eighth step of a Python loop is measured. The times are those of the last 1024
    measured steps of all loops over the loader. Loops inside jit are not measured.

    A step is the time from one batch to the next. It waited if more than a tenth of it
    passed until the batch arrived. JAX computes asynchronously: if your code does not
    use the result of a step, a later request for a batch may wait for that step.
    """

    samples: int
    """Delivered samples without padding, in Python loops and inside jit.

    Of a stream, the rows of batches in Python loops, with padding.
    """
    bytes: int
    """The size of these samples when they leave the engine, before traced stages."""
    measured_steps: int
    """The number of steps that were measured."""
    wait_per_step: float
    """The median time in seconds that a step waited for its batch."""
    waited: float
    """The share of steps that waited."""
    limit: str | None
    """What limits the loop: "data" if more than half of the steps waited, or "step".

    None before the first measured step.
    """

    def __str__(self) -> str:
        delivered = f"{self.samples:,} samples, {amount_text(self.bytes)} delivered"
        if self.limit is None:
            return delivered
        return (
            f"{delivered}; a step waited {self.wait_per_step * 1e3:.3f} ms, "
            f"{self.waited:.0%} of the steps waited for more than a tenth of their "
            f"time; limited by the {self.limit}"
        )


def stats_of(built: Built, steps: deque[Step]) -> Stats:
    """Returns the statistics of a loader from its last steps."""
    measured = [
        (came - asked, came - before)
        for before, asked, came in tuple(steps)
        if before is not None
    ]
    waits = [wait for wait, _ in measured]
    slow = sum(wait > DATA_LIMIT * step for wait, step in measured)
    waited = slow / max(len(measured), 1)
    samples = built.samples_delivered
    return Stats(
        samples=samples,
        bytes=samples * built.sample_bytes,
        measured_steps=len(measured),
        wait_per_step=float(np.median(waits)) if waits else 0.0,
        waited=waited,
        limit=("data" if waited > 0.5 else "step") if measured else None,
    )
