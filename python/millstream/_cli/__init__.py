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
    """Runs a command. Returns 0, 1 after an error or 2 after wrong usage."""
    with contextlib.ExitStack() as stack:
        if sys.stderr is None:  # the shell has closed it
            discarded = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(discarded))
        try:
            stack.enter_context(_exit_on_signals())
            # The user may press Ctrl-C during this import, which takes a while.
            from millstream._cli.arguments import run

            return run(arguments)
        except KeyboardInterrupt:
            print("millstream: interrupted", file=sys.stderr)
            return 130


@contextlib.contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise ``SystemExit``, which deletes temporary files."""
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _: object) -> None:
    # A second signal must not interrupt the cleanup.
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)
