"""tqdm progress bars for a Dataloader; needs ``millstream[tqdm]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

from millstream.hydrax._batch import Batch, TrainingBatch, ValidationBatch
from millstream.hydrax._loader import Dataloader

try:
    from tqdm import tqdm
except ImportError as error:
    raise ImportError(
        "millstream.hydrax.tqdm needs tqdm: pip install 'millstream[tqdm]'"
    ) from error

__all__ = ["ProgressMonitor", "tbatches"]

D = TypeVar("D")


class _Bar:
    """A tqdm bar that counts batches by their numbers."""

    def __init__(self, first: int, arguments: dict[str, Any]) -> None:
        self._next = first
        self.tqdm: Any = tqdm(**{"initial": first, "unit": "batch", **arguments})

    def advance(self, number: int) -> int:
        """Moves the bar past batch ``number``. Returns how many batches it skipped."""
        passed = number + 1 - self._next
        self._next += passed
        self.tqdm.update(passed)
        return passed - 1


class ProgressMonitor(Generic[D]):
    """Shows a bar for training, and another one during each validation.

    Args:
      dataloader: A deterministic Dataloader.
      report_interval: After this many batches, print how long the loop waited per batch
        and how many batches were dropped, if any. With 0 nothing is printed.
      description: The text before the training bar.
      tqdm_arguments: Further arguments for tqdm.
    """

    def __init__(
        self,
        dataloader: Dataloader[D],
        report_interval: int = 0,
        description: str = "train",
        **tqdm_arguments: Any,
    ) -> None:
        if not dataloader.deterministic:
            raise ValueError(
                "the dataloader is not deterministic, so its batches cannot be counted "
                "in order. Pass deterministic=True to Dataloader."
            )
        self._dataloader = dataloader
        self._interval = report_interval
        self._arguments = tqdm_arguments
        training = {"desc": description, "total": dataloader.last_batch}
        self._training = _Bar(dataloader.first_batch, training | tqdm_arguments)
        self._validation: _Bar | None = None
        self._validation_epoch = -1
        self._ended = self._dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_batch(self, batch: Batch[D]) -> None:
        """Call this before you use a batch."""
        if not isinstance(batch, ValidationBatch):
            if self._validation is not None:
                self._close_validation()
                self._training.tqdm.unpause()
        elif self._validation is None or self._validation_epoch != (
            batch.validation_epoch
        ):
            self._close_validation()
            self._validation_epoch = batch.validation_epoch
            total = self._dataloader.batches_per_validation
            arguments = {"desc": "validation", "total": total, "leave": False}
            self._validation = _Bar(0, arguments | self._arguments)

    def end_batch(self, batch: Batch[D]) -> None:
        """Call this after you have used a batch.

        A gap between two batches' numbers counts as dropped batches.
        """
        if isinstance(batch, TrainingBatch):
            self._dropped += self._training.advance(batch.batch_num)
        elif isinstance(batch, ValidationBatch) and self._validation is not None:
            self._dropped += self._validation.advance(batch.validation_epoch_batch)
        else:
            raise TypeError(f"expected a batch that has begun, found {batch!r}")
        self._ended += 1
        if self._interval > 0 and self._ended % self._interval == 0:
            self._report()

    def close(self) -> None:
        """Closes the bars."""
        self._close_validation()
        self._training.tqdm.close()

    def _close_validation(self) -> None:
        if self._validation is not None:
            self._validation.tqdm.close()
            self._validation = None

    def _report(self) -> None:
        behind = self._dataloader.idle_usec() / 1000 / self._interval
        if behind >= 1:
            tqdm.write(f"[hydrax] running behind by {behind:.0f} ms per batch")
        if self._dropped > 0:
            share = self._dropped / (self._dropped + self._interval)
            tqdm.write(f"[hydrax] dropped {self._dropped} batches ({share:.0%})")
            self._dropped = 0


def tbatches(
    dataloader: Dataloader[D],
    report_interval: int = 0,
    description: str = "train",
    **tqdm_arguments: Any,
) -> Iterator[Batch[D]]:
    """Iterates over a dataloader with progress bars. It enters the dataloader itself.

    The arguments are those of `ProgressMonitor`.
    """
    monitor = ProgressMonitor(
        dataloader, report_interval, description, **tqdm_arguments
    )
    with monitor, dataloader:
        for batch in dataloader:
            monitor.begin_batch(batch)
            yield batch
            monitor.end_batch(batch)
            del batch  # so that its memory can be reused for the next batch
