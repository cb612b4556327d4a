"""Hydrax's vocabulary over Millstream: change the import and keep the code.

Importing this package imports no jax, so that a loader's module may import it in a
worker process. See docs/hydrax.md for what differs from Hydrax and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream._lazy import lazy

if TYPE_CHECKING:
    from millstream.hydrax._batch import Batch, TrainingBatch, ValidationBatch
    from millstream.hydrax._groups import DataGroup
    from millstream.hydrax._loader import BatchTimeoutError, Dataloader
    from millstream.hydrax._references import debug_batch_references
    from millstream.hydrax._work import is_worker

__all__ = [
    "Batch",
    "BatchTimeoutError",
    "DataGroup",
    "Dataloader",
    "TrainingBatch",
    "ValidationBatch",
    "debug_batch_references",
    "is_worker",
]

_HOMES = {
    "_batch": ("Batch", "TrainingBatch", "ValidationBatch"),
    "_groups": ("DataGroup",),
    "_loader": ("BatchTimeoutError", "Dataloader"),
    "_references": ("debug_batch_references",),
    "_work": ("is_worker",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _HOMES)
