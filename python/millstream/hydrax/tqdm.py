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
                "the dataloader must be deterministic, because progress is counted in "
                "order. Pass deterministic=True to Dataloader."
            )
        self._dataloader = dataloader
        self._interval = report_interval
        self._arguments = tqdm_arguments
        self._training: Any = tqdm(
            **{
                "initial": dataloader.first_batch,
                "total": dataloader.last_batch,
                "unit": "batch",
                "desc": description,
                **tqdm_arguments,
            }
        )
        self._validation: Any = None
        self._next_batch = dataloader.first_batch
        self._validation_epoch = -1
        self._next_validation = 0
        self._ended = 0
        self._dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin_batch(self, batch: Batch[D]) -> None:
        """Call this before you use a batch."""
        if isinstance(batch, ValidationBatch):
            if batch.validation_epoch != self._validation_epoch:
                self._close_validation()
            if self._validation is None:
                self._next_validation = 0
                self._validation_epoch = batch.validation_epoch
                self._validation = tqdm(
                    **{
                        "total": self._dataloader.batches_per_validation,
                        "unit": "batch",
                        "desc": "validation",
                        "leave": False,
                        **self._arguments,
                    }
                )
        elif self._validation is not None:
            self._close_validation()
            self._training.unpause()

    def end_batch(self, batch: Batch[D]) -> None:
        """Call this after you have used a batch.

        A gap between two batches' numbers counts as dropped batches.
        """
        if isinstance(batch, TrainingBatch):
            passed = batch.batch_num + 1 - self._next_batch
            self._next_batch += passed
            self._training.update(passed)
        elif isinstance(batch, ValidationBatch):
            passed = batch.validation_epoch_batch + 1 - self._next_validation
            self._next_validation += passed
            self._validation.update(passed)
        else:
            raise TypeError(f"expected a batch, found {batch!r}")
        self._dropped += passed - 1
        self._ended += 1
        if self._interval > 0 and self._ended % self._interval == 0:
            self._report()

    def close(self) -> None:
        """Closes the bars."""
        self._close_validation()
        if self._training is not None:
            self._training.close()
            self._training = None

    def _close_validation(self) -> None:
        if self._validation is not None:
            self._validation.close()
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
    with (
        ProgressMonitor(
            dataloader, report_interval, description, **tqdm_arguments
        ) as monitor,
        dataloader,
    ):
        for batch in dataloader:
            monitor.begin_batch(batch)
            yield batch
            monitor.end_batch(batch)
            del batch  # so that its memory can be reused for the next batch
