"""Iterators that show a progress bar, and the progress bar of ``scan_epoch``."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from millstream._core.description import Tree
from millstream._core.progress_bar import ProgressBar
from millstream._run.iterator import BatchIterator, Position
from millstream._run.run import ENDLESS, Run
from millstream._run.scan import run_program
from millstream._run.state import EPOCH
from millstream._run.stream import Built
from millstream.progress import Report, StepProgress

_POLL_SECONDS = 0.1


class WatchedIterator(BatchIterator):
    """A ``BatchIterator`` that shows a progress bar until the loop ends."""

    def _start(self, words: Any, steps: int | None) -> Position:
        position = super()._start(words, steps)
        self._progress = self._new_progress(position[1])
        return position

    def _new_progress(self, left: int) -> StepProgress:
        return StepProgress("train", None if left >= ENDLESS else left)

    def __iter__(self) -> BatchIterator:
        self._progress.close()  # the bar of a loop that ended with `break`
        return self

    def __next__(self) -> tuple[Tree, Any]:
        before = self._position
        try:
            if self._left <= 0 or self._closed:
                return super().__next__()  # which raises
            samples = self.built.valid_rows(self._words())
            self._progress.wait()
            delivered = super().__next__()
            self._progress.got(samples)
        except BaseException:
            self._position = before  # the caller does not get the batch
            self._progress.close()
            raise
        return delivered

    def report(self) -> Report:
        """Returns the measurements of the last seconds."""
        return self._progress.report()

    def close(self) -> None:
        """Ends the iteration and the progress bar. ``state`` stays valid."""
        super().close()
        self._progress.close()


class WatchedRun(WatchedIterator, Run):
    """A ``Run`` that shows its epoch and the steps since epoch 0."""

    def _new_progress(self, left: int) -> StepProgress:
        return StepProgress("train", self._end, first=self._first)

    def __next__(self) -> tuple[Tree, Any]:
        if self._left > 0:
            self._progress.label = f"epoch {int(self._words()[EPOCH])}"
        return super().__next__()


class ScanProgress(ProgressBar):
    """A bar of the steps of a scan."""

    _lines_without_terminal = True

    def _format(self) -> dict[str, Any]:
        return {"unit": " steps"}

    def _line(self) -> str:
        return f"{self.label}: {self._done} of {self._total} steps"


def run_with_bar(length: int, built: Built, *arguments: Any) -> Any:
    """Calls ``run_program``. Another thread shows a bar until it returns or raises.

    Args:
      length: The number of batches that the program requests.
      arguments: The other arguments of ``run_program``: a program, the
        position, the carry and the arrays.
    """
    bar = ScanProgress(f"epoch {built.state(arguments[1]).epoch}", length)
    first = built.delivered
    running = threading.Lock()
    is_complete = False

    def show() -> None:
        bar.update(0)
        while not running.acquire(timeout=_POLL_SECONDS):
            bar.update(min(built.delivered - first, length))
        if is_complete:
            bar.update(length)
        bar.close()

    thread = threading.Thread(target=show, name="millstream progress", daemon=True)
    try:
        # Leaving the block always ends the thread: KeyboardInterrupt cannot prevent the
        # `__exit__` of a lock, because it is not written in Python.
        with running:
            with contextlib.suppress(RuntimeError):  # no further thread can be started
                thread.start()
            result = run_program(built, *arguments)
            is_complete = True
        return result
    finally:
        if thread.is_alive():
            thread.join()
