"""Delays KeyboardInterrupt while a state is between two values."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any


class HeldInterrupt:
    """While it is entered, Ctrl-C only sets ``pending``.

    It has an effect only in the main thread, with Python's own handler of SIGINT.
    """

    def __init__(self) -> None:
        self.pending = False
        self._held = False

    def _remember(self, *_: Any) -> None:
        self.pending = True

    def __enter__(self) -> None:
        self._held = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._held:
            signal.signal(signal.SIGINT, self._remember)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._held:
            self._held = False
            signal.signal(signal.SIGINT, signal.default_int_handler)
