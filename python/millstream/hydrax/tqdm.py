"""Progress bars of tqdm for a Dataloader; needs ``millstream[tqdm]``."""

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
    """A bar for training, and one for each validation while it lasts.

    Args:
      dataloader: One whose batches come in order.
      report_interval: After every so many batches a line says by how much the loader is
        behind and how many batches it dropped, if it is and did; 0 for never.
      description: What stands before the bar.
      tqdm_arguments: More arguments for tqdm.
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
                "progress is counted in order: the dataloader must be deterministic"
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
        """To be called before a batch is used."""
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
        """To be called when a batch was used; gaps between numbers are dropped ones."""
        if isinstance(batch, TrainingBatch):
            passed = batch.batch_num + 1 - self._next_batch
            self._next_batch += passed
            self._training.update(passed)
        elif isinstance(batch, ValidationBatch):
            passed = batch.validation_epoch_batch + 1 - self._next_validation
            self._next_validation += passed
            self._validation.update(passed)
        else:
            raise TypeError(f"a batch was expected, not {batch!r}")
        self._dropped += passed - 1
        self._ended += 1
        if self._interval > 0 and self._ended % self._interval == 0:
            self._report()

    def close(self) -> None:
        """Ends the bars."""
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
            tqdm.write(f"[hydrax] running behind by {behind:.0f} ms a batch")
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
    """The batches of a dataloader, with bars; it is entered and left here.

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
            del batch  # it is not to be held while the next one is waited for
