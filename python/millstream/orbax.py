"""Saves loader states in Orbax checkpoints, next to the model.

    manager.save(step, args=ocp.args.Composite(
        model=ocp.args.StandardSave(params), data=LoaderSave(loader, state)))
    restored = manager.restore(step, args=ocp.args.Composite(
        model=ocp.args.StandardRestore(params), data=LoaderRestore(loader)))
    state = restored.data

Needs Orbax: ``pip install 'millstream[orbax]'``.
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
    """Writes a state with a description of its pipeline, and checks it on restore."""

    def save(self, directory: Any, args: LoaderSave) -> None:
        """Writes the state, in the first process only."""
        if jax.process_index() == 0:
            saved = args.loader.save(args.state, format="bytes")
            (directory / _FILE).write_bytes(saved)

    def restore(self, directory: Any, args: LoaderRestore) -> LoaderState:
        """The saved state.

        Raises ``ValueError`` with the differences if it belongs to another pipeline.
        """
        path = directory / _FILE
        try:
            return args.loader.restore(path.read_bytes(), by=args.by)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


@ocp.args.register_with_handler(LoaderHandler, for_save=True)
@dataclass  # not frozen, because its base class is not
class LoaderSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Arguments for saving a state of a loader."""

    loader: DataLoader
    state: Any


@ocp.args.register_with_handler(LoaderHandler, for_restore=True)
@dataclass  # not frozen, because its base class is not
class LoaderRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Arguments for restoring a state; ``by="sample"`` allows another batch size."""

    loader: DataLoader
    by: str = "step"
