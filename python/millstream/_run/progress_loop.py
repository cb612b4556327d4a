"""The loop of ``iterate(progress=True)``."""

from __future__ import annotations

from typing import Any

from millstream._core.description import Tree
from millstream._delivery.host import HostDoor
from millstream._run.iterator import BatchIterator
from millstream.progress import Report, StepProgress


class WatchedIterator(BatchIterator):
    """The same batches, with a bar that ends with the loop."""

    def __init__(self, door: HostDoor, words: Any, steps: int | None) -> None:
        super().__init__(door, words, steps)
        self._progress = StepProgress("train", len(self))

    def __next__(self) -> tuple[Tree, Any]:
        before = self._at
        samples = self.program.plan.valid_rows(self._words())
        self._progress.wait()
        try:
            delivered = super().__next__()
            self._progress.got(samples)
        except BaseException:
            self._at = before  # of a batch that nobody gets
            self._progress.close()
            raise
        return delivered

    def report(self) -> Report:
        """The numbers of the last seconds."""
        return self._progress.report()

    def close(self) -> None:
        """Ends the iteration and the bar; the state stays."""
        super().close()
        self._progress.close()
