"""The three stages of Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_WORDS = (
    "no more batches; once more to abort at the next batch",
    "aborting at the next batch; once more to end the process now",
    "ending the process",
)


class Interrupts:
    """Counts Ctrl-C: stop, abort at the next batch, end the process.

    The handler is installed from the main thread only, since Python has it so; on other
    threads ``stop`` is the way. ``last_act`` runs before the process ends.
    """

    def __init__(self, last_act: Callable[[], None]) -> None:
        self._last_act = last_act
        self._before: Any = None
        self._installed = False
        self._raised = False
        self.stage = 0

    def install(self) -> None:
        """Takes SIGINT over."""
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if before is None:  # not Python's, so it could not be put back
            return
        self._before = before
        signal.signal(signal.SIGINT, self._handle)
        self._installed = True

    def restore(self) -> None:
        """Gives SIGINT back."""
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGINT, self._before)

    @property
    def stopped(self) -> bool:
        """Whether batches are to stop."""
        return self.stage > 0

    def stop(self) -> None:
        """The first stage, unless it is reached."""
        self.stage = max(self.stage, 1)

    def check(self) -> None:
        """Raises KeyboardInterrupt, once, in the second stage."""
        if self.stage > 1 and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.stage += 1
        _say(f"[hydrax] interrupted: {_WORDS[min(self.stage, 3) - 1]}")
        if self.stage > 2:
            try:
                self._last_act()
            finally:
                os._exit(1)


def _say(line: str) -> None:
    # It may be written to just now, or be closed.
    with contextlib.suppress(RuntimeError, OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
