"""Hydrax's vocabulary over Millstream: change the import and keep the code.

Importing this package imports no jax, so that a loader's module may import it in a
worker process. See docs/hydrax.md for what differs from Hydrax and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    "Batch": "_batch",
    "BatchTimeoutError": "_loader",
    "DataGroup": "_groups",
    "Dataloader": "_loader",
    "TrainingBatch": "_batch",
    "ValidationBatch": "_batch",
    "debug_batch_references": "_references",
    "is_worker": "_work",
}


if not TYPE_CHECKING:  # a checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        """Each name is imported when first asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        home = import_module(f"{__name__}.{_HOMES[name]}")
        value = globals()[name] = getattr(home, name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
