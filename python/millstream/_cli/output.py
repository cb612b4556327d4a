"""What the commands print: a line at a time, and nothing that moves a cursor."""

from __future__ import annotations

import errno
import os
import sys


class OutputError(Exception):
    """Standard output cannot be written to; an ``OSError`` is the cause."""


def printable(text: str) -> str:
    """The text with what is not for the eye, such as bytes of no character, escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def say(line: str) -> None:
    """Prints a line. Raises ``OutputError``."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        print(printable(line))
    except OSError as error:
        raise OutputError from error


def flush() -> None:
    """Hands over what was said. Raises ``OutputError``."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise OutputError from error


def complain(text: str) -> None:
    """Prints a line on standard error, below what was said. Raises ``OutputError``."""
    flush()
    try:
        print(f"millstream: {printable(text)}", file=sys.stderr)
    except OSError as error:
        raise OutputError from error


def end_output(error: OutputError) -> None:
    """Says why no more can be said, unless its reader has just seen enough."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error.__cause__, BrokenPipeError):
        complain(f"standard output: {error.__cause__}")
