"""One pass over batches, which can be broken off and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream import _resume
from millstream._pipeline import Tree
from millstream._state import LoaderState

if TYPE_CHECKING:
    from millstream._host import HostDoor
    from millstream._program import Program

# Words, the same as NumPy where they are needed, step of the epoch, batches left, and
# the next batch where its transfer has begun.
_At = tuple[Any, Any, int, int, Any]


class BatchIterator:
    """Batches one after the other: ``(batch, mask)``.

    ``state`` names the batch after the last one delivered, so a loop can be broken off
    and resumed at any point.
    """

    def __init__(self, door: HostDoor, words: Any, steps: int) -> None:
        self._door = door
        program = door.program
        self.program = program
        self._last_valid = _valid_rows_of_last(program)
        self._at = self._beginning(words, steps)
        self._closed = False

    def _beginning(self, words: Any, steps: int | None) -> _At:
        known = np.asarray(words)
        step = int(known[4]) | int(known[5]) << 32
        left = self.program.steps - step if steps is None else steps
        # Known without asking XLA, which may still be busy with the batch before.
        kept = np.array(known) if self.program.waits else None
        return words, kept, step, left, None

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> tuple[Tree, Any]:
        words, known, step, left, made = self._at
        if left <= 0:
            raise StopIteration
        if self._closed:
            raise ValueError("this iterator is closed: iterate() again from its state")
        last = step + 1 == self.program.steps
        if made is None:
            made = self._door.fetch(words, known, self._valid(last))
        value, mask, words = made
        if known is not None:
            natively = isinstance(words, np.ndarray)
            known = words if natively else self.program.plan.next_state(known)
        step = 0 if last else step + 1
        left -= 1
        ahead = None
        if self._door.transfers and left > 0:
            last = step + 1 == self.program.steps
            ahead = self._door.fetch_if_ready(words, self._valid(last))
        # Only here, and at once: Ctrl-C may come at any line before.
        self._at = words, known, step, left, ahead
        return value, mask

    def _valid(self, last: bool) -> int:
        return self._last_valid if last else self.program.batch_size

    def __len__(self) -> int:
        """How many batches are left."""
        return self._at[3]

    @property
    def state(self) -> LoaderState:
        """The state after the last batch delivered."""
        return LoaderState(self._at[0])

    def get_state(self) -> dict[str, Any]:
        """Where the iteration stands, as what JSON can hold; for ``set_state``."""
        words, _, _, left, _ = self._at
        return {**_resume.saved(self.program, words), "left": left}

    def set_state(self, state: Any) -> None:
        """Goes on from what ``get_state`` returned, here or in another process.

        A state that does not say how many batches are left goes to its epoch's end.
        """
        kept = _resume.parsed(state)
        words = _resume.restored(self.program, kept, "step").words
        self._abandon()
        self._at = self._beginning(words, _left_of(kept))
        self._closed = False

    def close(self) -> None:
        """Ends the iteration; the state stays."""
        self._closed = True
        self._abandon()

    def __del__(self) -> None:
        try:  # noqa: SIM105 - modules may be gone already
            self._abandon()
        except Exception:
            pass

    def _abandon(self) -> None:
        """Lets the engine drop what it makes ahead, unless the epoch is over: most
        loops go on with the next one.
        """
        words, known, _, left, _ = self._at
        known = words if known is None else known
        if left > 0 and isinstance(known, np.ndarray):
            self.program.engine.abandon(known)


def _left_of(state: Any) -> int | None:
    left = state.get("left") if isinstance(state, Mapping) else None
    if left is not None and (isinstance(left, bool) or int(left) < 0):
        raise ValueError(
            f"a state with {left!r} batches left is not one of get_state()"
        )
    return None if left is None else int(left)


def _valid_rows_of_last(program: Program) -> int:
    words = np.asarray(program.init_state(0).words)
    last = program.steps - 1
    words[4], words[5] = last & 0xFFFFFFFF, last >> 32
    return int(program.plan.valid_rows(words))
