"""Shows progress on standard error: a tqdm bar, or lines if tqdm is not installed."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar, Self, TextIO

_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 300.0
_UNITS = ("B", "kB", "MB", "GB", "TB")


class ProgressBar:
    """Shows how many bytes are done.

    By default it is shown on terminals only. ``shown`` or the environment variable
    MILLSTREAM_PROGRESS (1 or 0) overrides that. Without tqdm it prints a line after ten
    seconds, further lines at growing intervals, and one at the end. Errors while
    writing to the stream are ignored.
    """

    _format: ClassVar[dict[str, Any]] = {"unit": "B", "unit_scale": True}
    _lines_without_terminal: ClassVar[bool] = False

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        shown: bool | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        wanted = _is_wanted(self._stream) if shown is None else shown
        self._shown = bool(wanted) and self._stream is not None
        self._lines = self._shown or (wanted is None and self._lines_without_terminal)
        self._clock = clock
        self._bar: Any = None
        self._done: int | None = None
        self._pause = _FIRST_PAUSE
        self._due = 0.0

    @property
    def shown(self) -> bool:
        """Whether progress is shown from the start."""
        return self._shown

    def update(self, done: int, total: int | None = None) -> None:
        """Show ``done`` of ``total`` bytes, if it is time for another update."""
        self._total = self._total if total is None else total
        if self._done is None:
            self._due = self._clock() + _FIRST_PAUSE
            self._bar = self._new_bar(done) if self._shown else None
        self._done = done
        with contextlib.suppress(OSError, ValueError):
            if self._bar is not None:
                self._bar.total = self._total
                self._bar.update(done - self._bar.n)
            elif self._lines and self._clock() >= self._due:
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
                self._due = self._clock() + self._pause
                self._write(self._line())

    def say(self, message: str) -> None:
        """Write a line of text above the bar."""
        if self._shown:
            with contextlib.suppress(OSError, ValueError):
                if self._bar is not None:
                    self._bar.clear()
                self._write(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Show the last state and end the line."""
        if self._done is None:
            return
        with contextlib.suppress(OSError, ValueError):
            if self._bar is not None:
                self._bar.close()
            elif self._shown or self._pause > _FIRST_PAUSE:
                self._write(self._line())
        self._bar = self._done = None
        self._pause = _FIRST_PAUSE

    def _new_bar(self, first: int) -> Any:
        try:
            from tqdm import tqdm
        except ImportError:
            return None
        with contextlib.suppress(OSError, ValueError):
            return tqdm(
                desc=self._label,
                total=self._total,
                initial=first,
                file=self._stream,
                dynamic_ncols=True,
                **self._format,
            )

    def _line(self) -> str:
        total = f" of {amount_text(self._total)}" if self._total else ""
        return f"{self._label}: {amount_text(self._done or 0)}{total}"

    def _write(self, line: str) -> None:
        if self._stream is not None:
            print(line, file=self._stream, flush=True)


def amount_text(count: float) -> str:
    """Return a number of bytes with a unit, such as ``"26.4 MB"``."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def _is_wanted(stream: TextIO | None) -> bool | None:
    """Whether MILLSTREAM_PROGRESS is on; if unset, True on a terminal, else None."""
    asked = os.environ.get("MILLSTREAM_PROGRESS")
    if asked is not None:
        return asked not in ("", "0")
    with contextlib.suppress(ValueError):  # the stream is closed
        if stream is not None and stream.isatty():
            return True
    return None
