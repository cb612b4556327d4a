"""The iterators of ``DataLoader.run`` and ``DataLoader.epochs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream._run import resume
from millstream._run.iterator import BatchIterator, Position
from millstream._run.state import EPOCH, LoaderState, step_of, words_at

if TYPE_CHECKING:
    from millstream._delivery.host import HostDelivery

ENDLESS = 1 << 62
"""The number of batches that are left in a run without an end."""


class Run(BatchIterator):
    """An iterator over ``(batch, mask)`` that may cover several epochs.

    ``iter(run)`` is the run itself. After ``break``, a second loop over the run
    continues with the next batch.

    Args:
      words: The words of the first state.
      end: The number of batches from epoch 0 to the end of the run, or None.
    """

    def __init__(self, delivery: HostDelivery, words: Any, end: int | None) -> None:
        self._end = end
        super().__init__(delivery, words, None)

    def _start(self, words: Any, steps: int | None) -> Position:
        self._first = int(words[EPOCH]) * self.built.steps + step_of(words)
        left = ENDLESS if self._end is None else max(self._end - self._first, 0)
        self._all = left
        return super()._start(words, left)

    def __len__(self) -> int:
        """The number of batches still to come. Raises ``TypeError`` without an end."""
        if self._end is None:
            raise TypeError(
                "this run has no end, so it has no length. Pass epochs= or steps= to "
                "run()."
            )
        return self._left

    def __bool__(self) -> bool:
        return self._left > 0

    @property
    def step(self) -> int:
        """The number of batches from epoch 0 to here, also those before a resume."""
        return self._first + self._all - self._left

    @property
    def epoch(self) -> int:
        """The epoch of the batch delivered last; at first, that of the state."""
        step = self.step
        return (step if step == self._first else step - 1) // self.built.steps

    @property
    def epoch_ended(self) -> bool:
        """Whether the batch delivered last was the last one of its epoch."""
        step = self.step
        return step > self._first and step % self.built.steps == 0

    def __repr__(self) -> str:
        end = "no end" if self._end is None else f"{self._left} batches left"
        return f"<Run: epoch {self.epoch}, step {self.step}, {end}>"

    def get_state(self) -> dict[str, Any]:
        """Returns the position of the run as a dict that JSON can hold."""
        return resume.save_state(self.built, self._words())


class Epochs:
    """An iterator over epochs. Each epoch is a ``Run`` that ends with the epoch.

    Args:
      words: The words of the first state.
      epochs: The number of epochs, counted from epoch 0.
    """

    def __init__(self, delivery: HostDelivery, words: Any, epochs: int) -> None:
        self._delivery = delivery
        self._words: Any = words
        self._epochs = epochs

    def __iter__(self) -> Epochs:
        return self

    def __next__(self) -> Run:
        words = self._words
        epoch = int(words[EPOCH])
        if epoch >= self._epochs:
            raise StopIteration
        self._words = words_at(words, epoch + 1, 0)
        return Run(self._delivery, words, (epoch + 1) * self._delivery.built.steps)

    def __len__(self) -> int:
        """The number of epochs still to come."""
        return max(self._epochs - int(self._words[EPOCH]), 0)

    @property
    def state(self) -> LoaderState:
        """The state at which the next epoch starts."""
        return LoaderState(self._words)
