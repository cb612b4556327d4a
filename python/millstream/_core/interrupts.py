"""Handlers of SIGINT (Ctrl-C): one that stops a loop in stages, one that waits."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from millstream._core.public import public

T = TypeVar("T")

_MESSAGES = (
    "no more batches. Press Ctrl-C again to abort at the next batch",
    "aborting at the next batch. Press Ctrl-C again to end the process now",
    "ending the process",
)


@public
class StopOnInterrupt:
    """Stops a loop in three stages, so that the program can save its work.

    In a with block, the first Ctrl-C (SIGINT) sets ``stopped``. The second raises
    ``KeyboardInterrupt`` at the next batch or at the end of the block. The third ends
    the process at once. Python allows signal handlers only in the main thread; in other
    threads nothing is installed, and you can call ``stop``.

    Args:
      label: The name in the messages on standard error.
      on_stage: Called with the stage when a stage begins. In the third stage it is
        called before the process ends.
    """

    def __init__(
        self,
        *,
        label: str = "millstream",
        on_stage: Callable[[int], object] = lambda stage: None,
    ) -> None:
        self._label = label
        self._on_stage = on_stage
        self._previous: Any = None
        self._raised = False
        self._stage = 0

    def __enter__(self) -> Self:
        # Python could not restore a handler that C code has set, which is None here.
        handler = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and handler is not None:
            self._previous = handler
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None
        if kind is None:
            self.check()

    @property
    def stopped(self) -> bool:
        """Whether the loop should stop."""
        return self._stage > 0

    @property
    def stage(self) -> int:
        """How many signals have come; at least 1 after ``stop``."""
        return self._stage

    def stop(self) -> None:
        """Does what the first Ctrl-C does. Any thread may call this."""
        if self._stage == 0:
            self._stage = 1
            self._on_stage(1)

    def check(self) -> None:
        """Raises ``KeyboardInterrupt`` after a second Ctrl-C, but only once."""
        if self._stage > 1 and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def until_stopped(self, batches: Iterable[T]) -> Iterator[T]:
        """Yields the batches until ``stopped``, then calls ``check``."""
        remaining = iter(batches)
        while not self.stopped:
            try:
                batch = next(remaining)
            except StopIteration:
                return
            yield batch
            del batch  # so that its memory can be reused for the next batch
        self.check()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._stage += 1
        # The signal may have interrupted a write to stderr, or stderr may be closed.
        with contextlib.suppress(RuntimeError, OSError, ValueError):
            message = _MESSAGES[min(self._stage, 3) - 1]
            line = f"[{self._label}] interrupted: {message}"
            print(line, file=sys.stderr, flush=True)
        try:
            self._on_stage(self._stage)
        finally:
            if self._stage > 2:
                os._exit(1)


class HeldInterrupt:
    """While it is entered, SIGINT only sets a flag. ``deliver`` calls its handler.

    It has an effect only in the main thread.
    """

    def __init__(self) -> None:
        self._pending = False
        self._previous: Any = None

    def _remember(self, *_: Any) -> None:
        self._pending = True

    def deliver(self) -> None:
        """Calls the handler for a signal that came while the object was entered."""
        if not self._pending:
            return
        self._pending = False
        handler: Any = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, sys._getframe(1))

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        self._previous = handler if is_main and callable(handler) else None
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._remember)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
