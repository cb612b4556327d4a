"""The stage that reshapes batches of sequences for models of time series."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp

from millstream._core.description import Tree
from millstream._core.public import public
from millstream._stages.stage import Key, Stage, check_position, keyed, with_key

if TYPE_CHECKING:
    from millstream._run.builder import Builder

_MODES = ("batched", "packed")


@public
@dataclass(frozen=True, eq=False)
class TimeSeriesBatchTransform(Stage):
    """Reshapes the sequences under ``sequence_key`` for models of time series.

    The array has a batch axis B, a time axis T and any further axes, which are joined
    to one axis F of features. Without further axes F is 1. In the mode "batched" the
    array becomes (B, T, F).

    In the mode "packed" it becomes (B * T, F), one row per time step. The mask then has
    B * T elements too: each element is repeated T times. The boolean array under
    ``sequence_start_key`` is True in the first row of each sequence whose mask is True.
    Other arrays stay as they are, with B rows.

    The keys of a tuple are its positions. A ``sequence_start_key`` of n appends an
    array to a tuple of n arrays.

    The stage must follow BatchTransform. Building the pipeline raises ``TypeError`` if
    batches have other kinds of keys or the key does not hold an array, ``KeyError`` if
    there is no such key, and ``ValueError`` if the array has fewer than two axes.
    """

    changes_mask: ClassVar[bool] = True

    sequence_key: Key = "context"
    mode: str = "batched"
    sequence_start_key: Key = "sequence_start"

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.mode not in _MODES:
            raise ValueError(f"{name}: mode must be one of {_MODES}, not {self.mode!r}")
        if self.sequence_key == self.sequence_start_key:
            raise ValueError(
                f"{name}: sequence_key and sequence_start_key are both "
                f"{self.sequence_key!r}. Choose another sequence_start_key."
            )

    def place(self, builder: Builder) -> None:
        if not builder.batched:
            raise ValueError(
                f"{builder.stage}, needs batches. Put it after BatchTransform."
            )
        builder.add_traced(self.trace, changes_mask=True)

    def trace(self, value: Tree, mask: Any, batched: bool) -> tuple[Tree, Any]:
        """Returns ``(value, mask)``."""
        name = type(self).__name__
        x = keyed(value, self.sequence_key, name)
        if x.ndim < 2:
            raise ValueError(
                f"{name}: {self.sequence_key!r} needs a batch axis and a time axis, "
                f"but a batch has {x.dtype}{list(x.shape)}"
            )
        rows, steps = x.shape[:2]
        features = math.prod(x.shape[2:])
        if mask.shape != (rows,):
            raise ValueError(
                f"{name}: {self.sequence_key!r} has {rows} rows, but the mask has the "
                f"shape {list(mask.shape)}. Put the stage after BatchTransform, and "
                "before stages that change the number of rows."
            )
        if self.mode == "batched":
            return with_key(
                value, self.sequence_key, x.reshape(rows, steps, features)
            ), mask
        if isinstance(value, list | tuple):
            # A named tuple cannot become longer.
            longer = 0 if hasattr(value, "_fields") else 1
            where = f"{name}: sequence_start_key"
            check_position(value, self.sequence_start_key, where, len(value) + longer)
        packed = with_key(value, self.sequence_key, x.reshape(rows * steps, features))
        # JAX cannot repeat an array whose rows are explicitly sharded.
        each = mask[:, None]
        starts = (each & (jnp.arange(steps) == 0)).reshape(rows * steps)
        repeated = (each & jnp.ones(steps, bool)).reshape(rows * steps)
        return with_key(packed, self.sequence_start_key, starts), repeated
