"""The iterator over batches of a Python loop, which can be stopped and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from millstream._core.description import Tree
from millstream._run import resume
from millstream._run.state import LoaderState, step_of, words_of


class Delivery(Protocol):
    """How a Python loop gets its batches.

    A position is the words of a state, or the state of a stream. A cursor holds the
    position after a batch.
    """

    built: Any
    steps: Any
    """The times of the last steps of Python loops."""

    @property
    def needs_words(self) -> bool:
        """Whether ``fetch`` needs the position of every batch, not only the cursor."""

    def fetch(self, position: Any, cursor: Any, left: int) -> tuple[Tree, Any, Any]:
        """Returns ``(value, mask, cursor)`` of the batch at a position or cursor.

        ``left`` is how many batches the loop will fetch, including this one.
        """

    def first(self, position: Any) -> Any:
        """Returns the position for a loop to start with."""

    def after(self, position: Any, fetches: bool) -> tuple[Any, Any]:
        """Returns the next position, and its batch if ``fetches`` and it is ready."""

    def words(self, position: Any) -> Any:
        """Returns the words of a position or a cursor."""

    def state(self, position: Any) -> LoaderState:
        """Returns the state at a position or a cursor."""

    def next_epoch(self, run: Any) -> Any:
        """Returns the position at which the epoch after that of ``run`` starts."""

    def iterator_class(self, kind: type[Any]) -> type[Any]:
        """Returns the class of iterators to use instead of ``kind``."""


# (position of the next batch, batches left, cursor of the last fetch, fetched). The
# position is the words of a state, or the state of a stream; it is None if the cursor
# holds it. ``fetched`` is the next batch if its transfer to the device has started, and
# None otherwise.
Position = tuple[Any, int, Any, Any]


class BatchIterator:
    """An iterator over ``(batch, mask)``.

    ``state`` identifies the batch after the last one delivered, so a loop can be
    stopped and resumed at any point.
    """

    def __init__(
        self,
        delivery: Delivery,
        position: Any,
        steps: int | None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.built = delivery.built
        self._on_end = on_end
        self._delivery = delivery
        self._fetch = delivery.fetch
        self._position = self._start(position, steps)
        self._closed = False
        self._record = delivery.steps.append
        self._came: float | None = None

    def _start(self, position: Any, steps: int | None) -> Position:
        words = np.asarray(words_of(position))
        left = self.built.steps - step_of(words) if steps is None else steps
        return self._delivery.first(position), left, None, None

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
            fetched = self._fetch(words, cursor, left)
        value, mask, cursor = fetched
        fetched = None
        if cursor is not None and not self._delivery.needs_words:
            words = None
        else:
            words, fetched = self._delivery.after(words, left > 1)
        # One assignment, because Ctrl-C may interrupt between any two lines.
        self._position = words, left - 1, cursor, fetched
        if phase < 2:
            came = perf_counter()
            if phase == 0:
                self._record((self._came, asked, came))
            self._came = came
        return value, mask

    def _place(self) -> Any:
        """The position of the next batch, or the cursor that holds it."""
        position, _, cursor, _ = self._position
        return cursor if position is None else position

    def _words(self) -> Any:
        return self._delivery.words(self._place())

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
        return self._delivery.state(self._place())

    def get_state(self) -> dict[str, Any]:
        """Returns the position of the iterator as a dict that JSON can hold."""
        saved = resume.save_state(self.built, self.state)
        return {**saved, "left": self._left}

    def set_state(self, state: Any) -> None:
        """Moves the iterator to the position that ``get_state`` returned.

        The state may come from another process. From a bare state, the iterator
        continues to the end of the epoch.
        """
        saved = resume.parse(state)
        position = self.built.start(resume.restore_state(self.built, saved, "step"))
        self._abandon()
        self._position = self._start(position, _left_of(saved))
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
        if self._left > 0:
            self.built.abandon(self._words())


def _left_of(state: Any) -> int | None:
    left = state.get("left") if isinstance(state, Mapping) else None
    if left is not None and (isinstance(left, bool) or int(left) < 0):
        raise ValueError(
            f"expected 'left' in a state to be at least 0, found {left!r}. Pass a "
            "result of get_state()."
        )
    return None if left is None else int(left)
