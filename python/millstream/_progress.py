"""A progress bar for the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Self, TextIO

_INTERVAL = 0.1
_CELLS = 24
_FEWEST_CELLS = 8
_SHORTEST_LABEL = 8
_UNITS = ("B", "kB", "MB", "GB", "TB")


class ProgressBar:
    """Shows how many bytes are done, on standard error.

    It shows itself on a terminal only, unless ``shown`` or the environment variable
    MILLSTREAM_PROGRESS (1 or 0) says otherwise. Where it cannot be written, nothing is
    shown; what it tells of goes on.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        shown: bool | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._shown = _is_wanted(self._stream) if shown is None else shown
        self._started = self._drawn = time.monotonic()
        self._first: int | None = None
        self._done = 0
        self._width = 0
        self._cells = _CELLS

    @property
    def shown(self) -> bool:
        """Whether anything is written."""
        return self._shown

    def update(self, done: int, total: int | None = None) -> None:
        """Draw ``done`` of ``total`` bytes, unless the last drawing was just now."""
        if self._first is None:
            self._first = done
            self._started = time.monotonic()
        self._done = done
        self._total = self._total if total is None else total
        now = time.monotonic()
        if now - self._drawn >= _INTERVAL:
            self._drawn = now
            self._draw(now)

    def say(self, message: str) -> None:
        """Put a line of text above the bar."""
        if self._shown:
            self._erase()
            self._write(f"{message}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Draws for the last time and ends the line."""
        if self._first is not None:
            self._draw(time.monotonic())
            if self._shown:
                self._write("\n")
                self._width = 0
            self._first = None

    def _draw(self, now: float) -> None:
        if not self._shown:
            return
        line = self._fitted_line(now)
        padding = " " * (self._width - len(line))
        self._width = len(line)
        self._write(f"\r{line}{padding}")

    def _erase(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _fitted_line(self, now: float) -> str:
        """The line, with a shorter bar and label if it would not fit the terminal."""
        # The cursor behind a line as wide as the terminal is in the next one.
        room = _columns(self._stream) - 1
        self._cells = _CELLS
        line = self._line(now)
        if len(line) <= room:
            return line
        self._cells = max(_CELLS - (len(line) - room), _FEWEST_CELLS)
        line = self._line(now)
        length = max(len(self._label) - (len(line) - room), _SHORTEST_LABEL)
        if length < len(self._label):
            line = f"{self._label[: length - 3]}...{line[len(self._label) :]}"
        return line[:room]

    def _line(self, now: float) -> str:
        seconds = max(now - self._started, 1e-3)
        rate = (self._done - (self._first or 0)) / seconds
        speed = f"{amount_text(rate)}/s"
        if not self._total:
            return f"{self._label} {amount_text(self._done)} {speed}"
        share = min(self._done / self._total, 1.0)
        left = (self._total - self._done) / rate if rate > 0 else 0.0
        return (
            f"{self._label} {self._bar(share)} {amount_text(self._done)} of "
            f"{amount_text(self._total)}, {speed}, {left:.0f} s left"
        )

    @property
    def _is_narrow(self) -> bool:
        return self._cells < _CELLS

    def _bar(self, share: float) -> str:
        filled = round(share * self._cells)
        return f"[{'#' * filled}{'.' * (self._cells - filled)}] {share:4.0%}"

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()


def amount_text(count: float) -> str:
    """Return a number of bytes as people read it, such as ``"26.4 MB"``."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def is_asked() -> bool | None:
    """What the environment variable MILLSTREAM_PROGRESS says; None if nothing."""
    asked = os.environ.get("MILLSTREAM_PROGRESS")
    return None if asked is None else asked not in ("", "0")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether ``stream`` is a terminal; none at all and a closed one are not."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def _is_wanted(stream: TextIO | None) -> bool:
    asked = is_asked()
    return is_terminal(stream) if asked is None else asked


def _columns(stream: TextIO | None) -> int:
    import shutil

    with contextlib.suppress(OSError, ValueError):
        if stream is not None:
            columns = os.get_terminal_size(stream.fileno()).columns
            if columns:
                return columns
    return shutil.get_terminal_size().columns
