"""The random keys of stages that JAX traces."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from millstream._run.state import EPOCH, KEY_HIGH, KEY_LOW, STEP_LOW

FIRST_STAGE = 4 << 16
"""The stage number of the first MapTransform that takes a key (StageKind::kMap)."""


class Origin(NamedTuple):
    """What the random keys of a batch depend on. Empty if no stage takes a key."""

    words: Any = None
    """The words of the state of the batch."""
    rows: tuple[Any, ...] = ()
    """(epoch, sample) of each row, if a stage before batching takes a key."""

    def key(self, stage: int, batched: bool) -> jax.Array:
        """Traces the key of stage number ``stage``, for a batch or for one row."""
        words = self.words
        parts = (words[EPOCH], words[STEP_LOW]) if batched else self.rows
        epoch, sample = parts
        data = words[KEY_HIGH : KEY_LOW + 1]
        key = jax.random.wrap_key_data(data, impl="threefry2x32")
        for part in (epoch, stage, sample):
            key = jax.random.fold_in(key, part)
        return key
