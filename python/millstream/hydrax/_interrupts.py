"""Ctrl-C in three stages: stop, abort at the next batch, end the process."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_MESSAGES = (
    "no more batches. Press Ctrl-C again to abort at the next batch",
    "aborting at the next batch. Press Ctrl-C again to end the process now",
    "ending the process",
)


class Interrupts:
    """Counts SIGINT: the first stops, the second aborts, the third ends the process.

    Python allows signal handlers on the main thread only. Elsewhere, call ``stop``.
    ``before_exit`` runs before the process ends.
    """

    def __init__(self, before_exit: Callable[[], None]) -> None:
        self._before_exit = before_exit
        self._before: Any = None
        self._installed = False
        self._raised = False
        self.stage = 0

    def install(self) -> None:
        """Installs the handler, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if before is None:  # set by C code, so Python could not restore it
            return
        self._before = before
        signal.signal(signal.SIGINT, self._handle)
        self._installed = True

    def restore(self) -> None:
        """Restores the handler that was there before."""
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGINT, self._before)

    @property
    def stopped(self) -> bool:
        """Whether the run should stop."""
        return self.stage > 0

    def stop(self) -> None:
        """Enters the first stage, unless a stage has been entered."""
        self.stage = max(self.stage, 1)

    def check(self) -> None:
        """Raises KeyboardInterrupt in the second stage, but only once."""
        if self.stage > 1 and not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.stage += 1
        _print_error(f"[hydrax] interrupted: {_MESSAGES[min(self.stage, 3) - 1]}")
        if self.stage > 2:
            try:
                self._before_exit()
            finally:
                os._exit(1)


def _print_error(line: str) -> None:
    # The signal may have interrupted a write to stderr, or stderr may be closed.
    with contextlib.suppress(RuntimeError, OSError, ValueError):
        print(line, file=sys.stderr, flush=True)
