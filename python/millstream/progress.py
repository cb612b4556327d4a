"""Shows how fast a loop over batches runs, and whether the data or the step limits it.

``loader.iterate(state, progress=True)`` shows a tqdm bar on standard error. ``track``
does the same for any iterable of batches. Without tqdm, one line of text is rewritten.
If standard error is neither a terminal nor a Jupyter notebook, lines are printed from
time to time instead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, Generic, TextIO, TypeVar

from millstream._core.progress_bar import ProgressBar

__all__ = ["Report", "StepProgress", "Tracked", "track"]

T = TypeVar("T")

# Data limits a loop that spends more than this fraction of its time waiting for it.
DATA_LIMIT = 0.1

_WINDOW = 5.0
_MARKS = 20
# The first steps start workers and compile, so later reports leave them out.
_WARMUP_STEPS = 5
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} steps{postfix}"
_NO_TOTAL = "{desc}: {n_fmt} steps{postfix}"


@dataclass(frozen=True)
class Report:
    """The speed of a loop over its last seconds. Times are in seconds.

    ``wait_share`` is the fraction of the time that the loop waited for batches.
    """

    steps: int
    samples_per_second: float
    wait_per_step: float
    wait_share: float

    @property
    def limit(self) -> str:
        """What limits the loop: "data" if ``wait_share`` is above 0.1, or "step"."""
        return "data" if self.wait_share > DATA_LIMIT else "step"

    def __str__(self) -> str:
        waited = f"{self.wait_per_step * 1e3:.2f} ms per step ({self.wait_share:.0%})"
        return self._text(f"waited {waited}, ")

    def _text(self, waited: str = "") -> str:
        rate = _rate_text(self.samples_per_second)
        return f"{rate} samples/s, {waited}limited by the {self.limit}"


class StepProgress(ProgressBar):
    """A bar of steps. Call ``wait`` before requesting a batch and ``got`` after it.

    ``first`` is the number of steps that were done before. They count in ``total``.
    """

    _lines_without_terminal = True

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        first: int = 0,
        shown: bool | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(label, total, shown=shown, stream=stream, clock=clock)
        self._first = first
        self._steps = self._samples = 0
        self._waited = self._asked = self._came = 0.0
        self._marks: deque[tuple[float, int, int, float]] = deque()
        self._after_warmup = (0.0, 0, 0, 0.0)

    def wait(self) -> None:
        """Records that the loop is about to request a batch."""
        self._asked = self._clock()
        if self._done is None:  # the time since an earlier loop does not count
            mark = (self._asked, self._steps, self._samples, self._waited)
            self._marks = deque([mark])
            self.update(self._first + self._steps)

    def got(self, samples: int) -> None:
        """Records that the batch has arrived, with its number of samples."""
        now = self._clock()
        self._came = now
        self._waited += now - self._asked
        self._steps += 1
        self._samples += samples
        mark = (now, self._steps, self._samples, self._waited)
        if self._steps == _WARMUP_STEPS:
            self._after_warmup = mark
        elif self._steps == _WARMUP_STEPS + 1:
            self._marks = deque([self._after_warmup])
        elif now - self._marks[-1][0] >= _WINDOW / _MARKS:
            self._marks.append(mark)
            while len(self._marks) > 2 and now - self._marks[1][0] > _WINDOW:
                self._marks.popleft()
        self.update(self._first + self._steps)

    def report(self) -> Report:
        """The speed over the last seconds."""
        if not self._is_measured:
            return Report(self._steps, 0.0, 0.0, 0.0)
        then, steps, samples, waited = self._marks[0]
        seconds = max(self._came - then, 1e-9)
        waiting = self._waited - waited
        return Report(
            steps=self._steps,
            samples_per_second=(self._samples - samples) / seconds,
            wait_per_step=waiting / max(self._steps - steps, 1),
            wait_share=min(waiting / seconds, 1.0),
        )

    def __del__(self) -> None:
        # After `break` the cursor would stay on the bar's line.
        try:  # noqa: SIM105 - at exit, modules may already be unloaded
            self.close()
        except Exception:
            pass

    @property
    def _is_measured(self) -> bool:
        """Whether a batch has arrived since the loop started."""
        return bool(self._marks) and self._steps > self._marks[0][1]

    def _format(self) -> dict[str, Any]:
        return {"bar_format": _BAR if self._total else _NO_TOTAL}

    def _postfix(self) -> str:
        return self.report()._text() if self._is_measured else ""

    def _line(self) -> str:
        total = f" of {self._total}" if self._total else ""
        line = f"{self.label}: {self._first + self._steps}{total} steps"
        report = self._postfix() if self._rewrites else str(self.report())
        return f"{line}, {report}" if self._is_measured else line


class Tracked(Generic[T]):
    """Iterates over batches with a bar; ``report()`` returns the speed."""

    def __init__(
        self, batches: Iterable[T], progress: StepProgress, batch_size: int | None
    ) -> None:
        self._batches = iter(batches)
        self._progress = progress
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        self._progress.wait()
        try:
            batch = next(self._batches)
        except BaseException:
            self._progress.close()
            raise
        size = self._batch_size
        self._progress.got(samples_in(batch) if size is None else size)
        return batch

    def report(self) -> Report:
        """The speed over the last seconds."""
        return self._progress.report()

    def close(self) -> None:
        """Closes the bar."""
        self._progress.close()


def track(
    batches: Iterable[T],
    *,
    label: str = "train",
    total: int | None = None,
    batch_size: int | None = None,
    shown: bool | None = None,
    stream: TextIO | None = None,
) -> Tracked[T]:
    """Iterates over ``batches`` with a bar that shows the speed and what limits it.

    Args:
      batches: Any iterable of batches.
      label: The text before the bar.
      total: The number of batches; ``len(batches)`` by default, if it has a length.
      batch_size: The number of samples per batch. By default it is the length of the
        first array of each batch.
      shown: Whether to show a bar. None shows a bar on a terminal and in a notebook,
        and lines elsewhere.
      stream: Where to write; standard error by default.
    """
    if total is None and isinstance(batches, Sized):
        total = len(batches)
    progress = StepProgress(label, total, shown=shown, stream=stream)
    return Tracked(batches, progress, batch_size)


def samples_in(batch: Any) -> int:
    """The length of the batch's first array, or 1 if there is none."""
    arrays = getattr(batch, "arrays", batch)
    while not hasattr(arrays, "shape"):
        if hasattr(arrays, "values"):
            arrays = tuple(arrays.values())
        if not isinstance(arrays, (list, tuple)) or not arrays:
            return 1
        arrays = arrays[0]
    return int(arrays.shape[0]) if arrays.shape else 1


def _rate_text(rate: float) -> str:
    for unit in ("", "k", "M"):
        if rate < 1000:
            return f"{rate:.3g}{unit}"
        rate /= 1000
    return f"{rate:.3g}G"
