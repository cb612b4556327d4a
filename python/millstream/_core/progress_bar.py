"""Shows progress on standard error: a tqdm bar, or text if tqdm is not installed."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO

_BAR_PAUSE = 0.1
_REWRITE_PAUSE = 0.5
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 300.0
_ROWS = 20  # how many bars tqdm shows at most
_WIDTH = 80
_UNITS = ("B", "kB", "MB", "GB", "TB")


class ProgressBar:
    """Shows how many bytes are done.

    By default it is shown on terminals and in Jupyter notebooks only. ``shown`` or the
    environment variable MILLSTREAM_PROGRESS (1 or 0) overrides that. Without tqdm it
    rewrites one line. If the stream is neither a terminal nor a notebook, it then
    prints a line after ten seconds, further lines at growing intervals, and one at the
    end. It never raises an error of the stream or of tqdm.
    """

    _lines_without_terminal = False

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        shown: bool | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        stream = sys.stderr if stream is None else stream
        self.label = label
        self._total = total
        self._stream = _QuietStream(stream)
        self._live = _is_terminal(stream) or _is_notebook(stream)
        wanted = _is_wanted(self._live) if shown is None else shown
        self._shown = bool(wanted) and stream is not None
        self._lines = self._shown or (wanted is None and self._lines_without_terminal)
        self._clock = clock
        self._bar: Any = None
        self._done: int | None = None
        self._length = 0
        """The length of the text that the next one replaces."""
        self._pause = _FIRST_PAUSE
        self._due = 0.0

    @property
    def shown(self) -> bool:
        """Whether progress is shown from the start."""
        return self._shown

    def update(self, done: int, total: int | None = None) -> None:
        """Show ``done`` of ``total`` bytes, if it is time for another update."""
        self._total = self._total if total is None else total
        is_first, self._done = self._done is None, done
        now = self._clock()
        if not self._lines or (now < self._due and not is_first):
            return
        if is_first:
            self._bar = self._new_bar(done) if self._shown else None
            self._pause = _FIRST_PAUSE
        if self._bar is not None or self._rewrites:
            self._due = now + (_REWRITE_PAUSE if self._rewrites else _BAR_PAUSE)
            self._draw()
        else:
            if not is_first:
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
                self._draw()
            self._due = now + self._pause

    def say(self, message: str) -> None:
        """Write a line of text above the bar."""
        if self._shown:
            with contextlib.suppress(Exception):
                if self._bar is not None:
                    with self._bar.get_lock():
                        self._bar.clear(nolock=True)
                elif self._length:
                    self._rewrite("")
                    self._stream.write("\r")
                self._stream.write(f"{message}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Show the last state and end the line."""
        if self._done is None:
            return
        if self._shown or self._pause > _FIRST_PAUSE:
            self._draw()
        if self._length:
            self._stream.write("\n")
        self._close_bar()
        self._done = None
        self._length = 0

    @property
    def _rewrites(self) -> bool:
        return self._bar is None and self._shown and self._live

    def _draw(self) -> None:
        if self._bar is not None:
            try:
                self._draw_bar(self._bar)
            except Exception:  # an error of tqdm
                self._close_bar()
        elif self._rewrites:
            self._rewrite(self._line())
        elif self._lines:
            self._stream.write(f"{self._line()}\n")

    def _draw_bar(self, bar: Any) -> None:
        if bar.disable:  # by TQDM_DISABLE
            return
        bar.n, bar.total, bar.ncols = self._done, self._total, self._stream.columns()
        bar.desc, bar.postfix = self.label, self._postfix()
        # After an error, tqdm's own methods would keep this lock.
        with bar.get_lock():
            bar.display()

    def _rewrite(self, line: str) -> None:
        line = line[: self._stream.columns()]
        self._stream.write("\r" + line.ljust(self._length))
        self._length = len(line)

    def _new_bar(self, first: int) -> Any:
        try:
            from tqdm import tqdm

            bar = tqdm(
                desc=self.label,
                total=self._total,
                initial=first,
                file=self._stream,
                ncols=self._stream.columns(),
                nrows=_ROWS,
                delay=1e-9,  # the constructor does not draw
                **self._format(),
            )
            bar.delay = 0.0
            return bar
        except Exception:  # it is not installed, or fails
            return None

    def _close_bar(self) -> None:
        bar, self._bar = self._bar, None
        with contextlib.suppress(Exception):
            if bar is not None:
                bar.close()

    def _format(self) -> dict[str, Any]:
        """The arguments of tqdm that set what the bar shows."""
        return {"unit": "B", "unit_scale": True}

    def _postfix(self) -> str:
        """The text after the bar."""
        return ""

    def _line(self) -> str:
        """The text that is shown without tqdm."""
        total = f" of {amount_text(self._total)}" if self._total else ""
        return f"{self.label}: {amount_text(self._done or 0)}{total}"


class _QuietStream:
    """A text stream that ignores errors. tqdm would keep its lock after an error."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.encoding = getattr(stream, "encoding", None)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same stream. ``tqdm.write`` compares streams."""
        return self.stream is getattr(other, "stream", other)

    __hash__ = None  # type: ignore[assignment]

    def write(self, text: str) -> None:
        with contextlib.suppress(Exception):
            self.stream.write(text)
            self.stream.flush()

    def flush(self) -> None:
        """Does nothing, because ``write`` flushes."""

    def columns(self) -> int:
        """The number of characters that fit on a line, at least 1."""
        known = []
        with contextlib.suppress(ValueError):
            known.append(int(os.environ.get("COLUMNS", "")))
        if _is_terminal(self.stream):
            with contextlib.suppress(Exception):
                known.append(os.get_terminal_size(self.stream.fileno()).columns)
        # Some terminals start a new line after a character in the last column.
        return max(min([n for n in known if n > 0], default=_WIDTH) - 1, 1)


def amount_text(count: float) -> str:
    """Return a number of bytes with a unit, such as ``"26.4 MB"``."""
    for unit in _UNITS[:-1]:
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_UNITS[-1]}"


def _is_wanted(live: bool) -> bool | None:
    """Whether MILLSTREAM_PROGRESS is on; if unset, True if ``live``, else None."""
    asked = os.environ.get("MILLSTREAM_PROGRESS")
    if asked is not None:
        return asked not in ("", "0")
    return True if live else None


def _is_terminal(stream: Any) -> bool:
    with contextlib.suppress(Exception):  # such as a closed stream
        return bool(stream.isatty())
    return False


def _is_notebook(stream: Any) -> bool:
    """Whether a Jupyter kernel sends what is written to the stream to its clients."""
    iostream = sys.modules.get("ipykernel.iostream")
    return iostream is not None and isinstance(stream, iostream.OutStream)
