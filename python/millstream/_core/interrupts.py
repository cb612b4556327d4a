"""Delays the handler of SIGINT (Ctrl-C) while a state is between two values."""

from __future__ import annotations

import signal
import sys
import threading
from types import TracebackType
from typing import Any


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
