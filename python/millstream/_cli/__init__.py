"""The command line: ``millstream inspect``, ``verify`` and ``convert``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status: 0, 1 for errors, 2 for usage."""
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:  # closed by the shell
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        try:
            stack.enter_context(_ended_by_signals())
            # Imported here since that takes long enough to be interrupted.
            from millstream._cli.arguments import run

            return run(arguments)
        except KeyboardInterrupt:
            print("millstream: interrupted", file=sys.stderr)
            return 130


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Signals that end a process let it clean up first: they raise ``SystemExit``."""
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one shall not stop the cleaning
    raise SystemExit(128 + number)
