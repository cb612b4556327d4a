"""States of loaders in Orbax checkpoints, beside the model's.

    manager.save(step, args=ocp.args.Composite(
        model=ocp.args.StandardSave(params), data=LoaderSave(loader, state)))
    kept = manager.restore(step, args=ocp.args.Composite(
        model=ocp.args.StandardRestore(params), data=LoaderRestore(loader)))
    state = kept.data

Needs Orbax: ``pip install millstream[orbax]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

from millstream._run.loader import DataLoader
from millstream._run.state import LoaderState

try:
    import orbax.checkpoint as ocp
except ImportError as error:
    raise ImportError(
        "millstream.orbax needs Orbax: pip install 'millstream[orbax]'"
    ) from error

__all__ = ["LoaderHandler", "LoaderRestore", "LoaderSave"]

_FILE = "millstream.json"


class LoaderHandler(ocp.CheckpointHandler):  # type: ignore[misc]
    """Writes a state with what it belongs to, and checks that when it is read."""

    def save(self, directory: Any, args: LoaderSave) -> None:
        """Writes the state, once for all processes."""
        if jax.process_index() == 0:
            kept = args.loader.save(args.state, format="bytes")
            (directory / _FILE).write_bytes(kept)

    def restore(self, directory: Any, args: LoaderRestore) -> LoaderState:
        """The state; ``ValueError`` names what differs where it does not fit."""
        path = directory / _FILE
        try:
            return args.loader.restore(path.read_bytes(), by=args.by)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


@ocp.args.register_with_handler(LoaderHandler, for_save=True)
@dataclass  # as its base, which is not frozen
class LoaderSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """What to save: a state of a loader."""

    loader: DataLoader
    state: Any


@ocp.args.register_with_handler(LoaderHandler, for_restore=True)
@dataclass  # as its base, which is not frozen
class LoaderRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """What to restore it for; ``by="sample"`` allows another batch size."""

    loader: DataLoader
    by: str = "step"
