"""The iterator of ``iterate(progress=True)``."""

from __future__ import annotations

from typing import Any

from millstream._core.description import Tree
from millstream._delivery.host import HostDelivery
from millstream._run.iterator import BatchIterator
from millstream.progress import Report, StepProgress


class WatchedIterator(BatchIterator):
    """A ``BatchIterator`` that shows a progress bar until the loop ends."""

    def __init__(self, delivery: HostDelivery, words: Any, steps: int | None) -> None:
        super().__init__(delivery, words, steps)
        self._progress = StepProgress("train", len(self))

    def __next__(self) -> tuple[Tree, Any]:
        before = self._position
        samples = self.built.plan.valid_rows(self._words())
        self._progress.wait()
        try:
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
