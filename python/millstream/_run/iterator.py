"""The iterator over batches of a Python loop, which can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream._core.description import Tree
from millstream._run import resume
from millstream._run.state import LoaderState, is_traced, step_of

if TYPE_CHECKING:
    from millstream._delivery.host import HostDelivery


# (words of the next batch, batches left, cursor of the last fetch, fetched). The words
# are None if the cursor holds them. ``fetched`` is the next batch if its transfer to
# the device has started, and None otherwise.
Position = tuple[Any, int, Any, Any]


class BatchIterator:
    """An iterator over ``(batch, mask)``.

    ``state`` identifies the batch after the last one delivered, so a loop can be
    stopped and resumed at any point.
    """

    def __init__(
        self,
        delivery: HostDelivery,
        words: Any,
        steps: int | None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.built = delivery.built
        self._on_end = on_end
        self._delivery = delivery
        self._fetch = delivery.fetch
        self._next_state = delivery.built.plan.next_state
        self._position = self._start(words, steps)
        self._closed = False
        self._record = delivery.steps.append
        self._came: float | None = None

    def _start(self, words: Any, steps: int | None) -> Position:
        copy = np.array(words)
        left = self.built.steps - step_of(copy) if steps is None else steps
        return copy, left, None, None

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> tuple[Tree, Any]:
        words, left, cursor, fetched = self._position
        # Only every eighth step is measured, because that takes time.
        phase = left & 7
        asked = 0.0 if phase else perf_counter()
        if left <= 0:
            if self._on_end is not None:
                self._on_end()
            raise StopIteration
        if self._closed:
            raise ValueError(
                "this iterator is closed. Continue with iterate(iterator.state)."
            )
        if fetched is None:
            fetched = self._fetch(words, cursor)
        value, mask, cursor = fetched
        fetched = None
        if cursor is not None and not self._delivery.needs_words:
            words = None
        else:
            words = self._next_state(words)
            if self._delivery.transfers and left > 1:
                fetched = self._delivery.fetch_if_ready(words)
        # One assignment, because Ctrl-C may interrupt between any two lines.
        self._position = words, left - 1, cursor, fetched
        if phase < 2:
            came = perf_counter()
            if phase == 0:
                self._record((self._came, asked, came))
            self._came = came
        return value, mask

    def _words(self) -> Any:
        words, _, cursor, _ = self._position
        if words is None:
            words = cursor if is_traced(cursor) else np.asarray(cursor)
        return words

    @property
    def _left(self) -> int:
        """The number of batches left."""
        return self._position[1]

    def __len__(self) -> int:
        """The number of batches left."""
        return self._left

    @property
    def state(self) -> LoaderState:
        """The state after the last batch delivered."""
        return LoaderState(self._words())

    def get_state(self) -> dict[str, Any]:
        """Returns the position of the iterator as a dict that JSON can hold."""
        saved = resume.save_state(self.built, self._words())
        return {**saved, "left": self._left}

    def set_state(self, state: Any) -> None:
        """Moves the iterator to the position that ``get_state`` returned.

        The state may come from another process. From a bare state, the iterator
        continues to the end of the epoch.
        """
        saved = resume.parse(state)
        words = resume.restore_state(self.built, saved, "step").words
        self._abandon()
        self._position = self._start(words, _left_of(saved))
        self._closed = False

    def close(self) -> None:
        """Ends the iteration. ``state`` stays valid."""
        self._closed = True
        self._abandon()

    def __del__(self) -> None:
        try:  # noqa: SIM105 - contextlib may be gone when the interpreter exits
            self._abandon()
        except Exception:
            pass

    def _abandon(self) -> None:
        """Leaves the current position.

        Lets the engine drop prefetched batches, unless the loop is finished: after a
        finished loop most programs continue with the next epoch.
        """
        left = self._left
        if left > 0:
            self.built.engine.abandon(self._words())


def _left_of(state: Any) -> int | None:
    left = state.get("left") if isinstance(state, Mapping) else None
    if left is not None and (isinstance(left, bool) or int(left) < 0):
        raise ValueError(
            f"expected 'left' in a state to be at least 0, found {left!r}. Pass a "
            "result of get_state()."
        )
    return None if left is None else int(left)
