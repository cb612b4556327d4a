"""The loader of Cyreal."""

from __future__ import annotations

from typing import Any

import millstream
from millstream import LoaderState
from millstream._run.iterator import BatchIterator
from millstream._run.scan import Body


class DataLoader(millstream.DataLoader):
    """``millstream.DataLoader`` with Cyreal's ``iterate`` and ``scan_epoch``.

    ``iterate`` may repeat an epoch without a warning.
    """

    _warns_of_repeats = False

    def iterate(
        self, state: Any = None, *, steps: int | None = None, progress: bool = False
    ) -> BatchIterator:
        """Returns an iterator over ``(batch, mask)``.

        It yields ``steps`` batches, by default as many as an epoch has, also if
        ``state`` is in the middle of an epoch.
        """
        steps = self.steps_per_epoch if steps is None else steps
        return super().iterate(state, steps=steps, progress=progress)

    def scan_epoch(
        self,
        state: Any,
        carry: Any,
        body_fn: Body,
        unroll: bool | int = False,
        *,
        steps: int | None = None,
        progress: bool = False,
    ) -> tuple[LoaderState, Any, Any]:
        """Runs ``body_fn(carry, batch, mask) -> (carry, output)`` for an epoch.

        Returns ``(state, carry, outputs)``.
        """
        return super().scan_epoch(
            state, carry, body_fn, steps=steps, unroll=unroll, progress=progress
        )


DataLoader.__module__ = "millstream.cyreal"
