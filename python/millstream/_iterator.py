"""One pass over batches, which can be broken off and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream import _resume
from millstream._pipeline import Tree
from millstream._state import LoaderState, moved, step_of

if TYPE_CHECKING:
    from millstream._host import HostDoor
    from millstream._program import Program


class BatchIterator:
    """Batches one after the other: ``(batch, mask)``.

    ``state`` names the batch after the last one delivered, so a loop can be broken off
    and resumed at any point.
    """

    def __init__(self, door: HostDoor, words: Any, steps: int | None) -> None:
        self._door = door
        program = door.program
        self.program = program
        self._last_valid = _valid_rows_of_last(program)
        self._start(words, steps)
        self._closed = False

    def _start(self, words: Any, steps: int | None) -> None:
        self._words = words
        known = np.asarray(words)
        self._step = step_of(known)
        self._left = self.program.steps - self._step if steps is None else steps
        self._ahead: Any = None
        # Known without asking XLA, which may still be busy with the batch before.
        self._known = np.array(known) if self.program.waits else None

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> tuple[Tree, Any]:
        if self._left <= 0:
            raise StopIteration
        if self._closed:
            raise ValueError("this iterator is closed: iterate() again from its state")
        last = self._step + 1 == self.program.steps
        made, self._ahead = self._ahead, None
        known = self._known
        if made is None:
            made = self._door.fetch(self._words, known, self._valid(last))
        value, mask, self._words = made
        if known is not None:
            after = self._words
            natively = isinstance(after, np.ndarray)
            self._known = after if natively else self.program.plan.next_state(known)
        self._step = 0 if last else self._step + 1
        self._left -= 1
        if self._door.transfers and self._left > 0:
            last = self._step + 1 == self.program.steps
            self._ahead = self._door.fetch_if_ready(self._words, self._valid(last))
        return value, mask

    def _valid(self, last: bool) -> int:
        return self._last_valid if last else self.program.batch_size

    def __len__(self) -> int:
        """How many batches are left."""
        return self._left

    @property
    def state(self) -> LoaderState:
        """The state after the last batch delivered."""
        return LoaderState(self._words)

    def get_state(self) -> dict[str, Any]:
        """Where the iteration stands, as what JSON can hold; for ``set_state``."""
        return {**_resume.saved(self.program, self._words), "left": self._left}

    def set_state(self, state: Any) -> None:
        """Goes on from what ``get_state`` returned, here or in another process.

        A state that does not say how many batches are left goes to its epoch's end.
        """
        kept = _resume.parsed(state)
        words = _resume.restored(self.program, kept, "step").words
        self._start(words, _left_of(kept))
        self._closed = False

    def close(self) -> None:
        """Ends the iteration; the state stays."""
        self._closed = True


def _left_of(state: Any) -> int | None:
    left = state.get("left") if isinstance(state, Mapping) else None
    if left is not None and (isinstance(left, bool) or int(left) < 0):
        raise ValueError(
            f"a state with {left!r} batches left is not one of get_state()"
        )
    return None if left is None else int(left)


def _valid_rows_of_last(program: Program) -> int:
    last = moved(program.init_state(0).words, 0, program.steps - 1)
    return int(program.plan.valid_rows(last))
