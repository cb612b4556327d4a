"""One pass over batches, which can be broken off and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream._core.description import Tree
from millstream._run import resume
from millstream._run.state import LoaderState, step_of, words_in

if TYPE_CHECKING:
    from millstream._delivery.host import HostDoor


# Words, batches left, and either the cursor of the next batch or that batch itself,
# where its transfer has begun. The words are None where only the cursor is needed.
_At = tuple[Any, int, Any, Any]


class BatchIterator:
    """Batches one after the other: ``(batch, mask)``.

    ``state`` names the batch after the last one delivered, so a loop can be broken off
    and resumed at any point.
    """

    def __init__(self, door: HostDoor, words: Any, steps: int | None) -> None:
        self.program = door.program
        self._door = door
        self._fetch = door.fetch
        self._next_state = door.program.plan.next_state
        self._at = self._beginning(words, steps)
        self._closed = False

    def _beginning(self, words: Any, steps: int | None) -> _At:
        known = np.array(words)
        left = self.program.steps - step_of(known) if steps is None else steps
        return known, left, None, None

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> tuple[Tree, Any]:
        words, left, cursor, made = self._at
        if left <= 0:
            raise StopIteration
        if self._closed:
            raise ValueError("this iterator is closed: iterate() again from its state")
        if made is None:
            made = self._fetch(words, cursor)
        value, mask, cursor = made
        made = None
        if cursor is not None and not self._door.counts:
            words = None
        else:
            words = self._next_state(words)
            if self._door.transfers and left > 1:
                made = self._door.fetch_if_ready(words)
        # Only here, and at once: Ctrl-C may come at any line before.
        self._at = words, left - 1, cursor, made
        return value, mask

    def _words(self) -> Any:
        words, _, cursor, _ = self._at
        return words if words is not None else words_in(cursor)

    def __len__(self) -> int:
        """How many batches are left."""
        return self._at[1]

    @property
    def state(self) -> LoaderState:
        """The state after the last batch delivered."""
        return LoaderState(self._words())

    def get_state(self) -> dict[str, Any]:
        """Where the iteration stands, as what JSON can hold; for ``set_state``."""
        saved = resume.saved(self.program, self._words())
        return {**saved, "left": len(self)}

    def set_state(self, state: Any) -> None:
        """Goes on from what ``get_state`` returned, here or in another process.

        A state that does not say how many batches are left goes to its epoch's end.
        """
        kept = resume.parsed(state)
        words = resume.restored(self.program, kept, "step").words
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
        if len(self) > 0:
            self.program.engine.abandon(self._words())


def _left_of(state: Any) -> int | None:
    left = state.get("left") if isinstance(state, Mapping) else None
    if left is not None and (isinstance(left, bool) or int(left) < 0):
        raise ValueError(
            f"a state with {left!r} batches left is not one of get_state()"
        )
    return None if left is None else int(left)
