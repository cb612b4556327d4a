"""Prints lines, with control characters escaped."""

from __future__ import annotations

import errno
import os
import sys


class OutputError(Exception):
    """Writing to standard output failed; ``__cause__`` is the ``OSError``."""


def printable(text: str) -> str:
    """Returns the text with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def say(line: str) -> None:
    """Prints a line to standard output. Raises ``OutputError``."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        print(printable(line))
    except OSError as error:
        raise OutputError from error


def flush() -> None:
    """Flushes standard output. Raises ``OutputError``."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise OutputError from error


def complain(text: str) -> None:
    """Flushes standard output and prints to standard error. Raises ``OutputError``."""
    flush()
    try:
        print(f"millstream: {printable(text)}", file=sys.stderr)
    except OSError as error:
        raise OutputError from error


def end_output(error: OutputError) -> None:
    """Discards further output, and prints the error unless a pipe was closed."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error.__cause__, BrokenPipeError):
        complain(f"standard output: {error.__cause__}")
