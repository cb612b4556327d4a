"""The iterators of ``DataLoader.run`` and ``DataLoader.epochs``."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream._run import resume
from millstream._run.iterator import BatchIterator, Delivery, Position
from millstream._run.state import EPOCH, LoaderState, step_of, words_of

ENDLESS = 1 << 62
"""The number of batches that are left in a run without an end."""


class Run(BatchIterator):
    """An iterator over ``(batch, mask)`` that may cover several epochs.

    ``iter(run)`` is the run itself. After ``break``, a second loop over the run
    continues with the next batch.

    Args:
      position: Where to start.
      epochs: The number of epochs, counted from epoch 0, or None.
      steps: The number of batches, counted from epoch 0, or None. With ``epochs`` and
        ``steps``, the earlier end counts.
    """

    def __init__(
        self,
        delivery: Delivery,
        position: Any,
        epochs: int | None,
        steps: int | None = None,
    ) -> None:
        self._epochs, self._steps = epochs, steps
        super().__init__(delivery, position, None)

    def _last_batch(self) -> int | None:
        """Returns the number of batches from epoch 0 to the end of the run, or None."""
        ends = [] if self._epochs is None else [self._epochs * self.built.steps]
        return min(
            [*ends, *([] if self._steps is None else [self._steps])], default=None
        )

    def _batches_before(self, position: Any) -> int:
        """Returns the number of batches from epoch 0 to a position."""
        words = np.asarray(words_of(position))
        return int(words[EPOCH]) * int(self.built.steps) + step_of(words)

    def _start(self, position: Any, steps: int | None) -> Position:
        self._end = self._last_batch()
        self._first = self._batches_before(position)
        left = ENDLESS if self._end is None else max(self._end - self._first, 0)
        self._all = left
        return super()._start(position, left)

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
    def last_epoch(self) -> int:
        """The epoch of the last batch of this run, which has an end."""
        assert self._end is not None
        return max(self._end - 1, self._first) // self.built.steps

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
        return resume.save_state(self.built, self.state)


class Epochs:
    """An iterator over epochs. Each epoch is a ``Run`` that ends with the epoch.

    Args:
      position: Where to start.
      epochs: The number of epochs, counted from epoch 0.
    """

    def __init__(self, delivery: Delivery, position: Any, epochs: int) -> None:
        self._delivery = delivery
        self._position: Any = position
        self._run: Run | None = None
        self._epochs = epochs

    def __iter__(self) -> Epochs:
        return self

    def __next__(self) -> Run:
        epoch = self._epoch
        if epoch >= self._epochs:
            raise StopIteration
        kind = self._delivery.iterator_class(Run)
        self._run = kind(self._delivery, self._next(), epoch + 1)
        return self._run

    @property
    def _epoch(self) -> int:
        """The number of the next epoch."""
        given = int(np.asarray(words_of(self._position))[EPOCH])
        return given if self._run is None else self._run.last_epoch + 1

    def _next(self) -> Any:
        """Returns the position at which the next epoch starts."""
        if self._run is not None:
            self._position, self._run = self._delivery.next_epoch(self._run), None
        return self._position

    def __len__(self) -> int:
        """The number of epochs still to come."""
        return max(self._epochs - self._epoch, 0)

    @property
    def state(self) -> LoaderState:
        """The state at which the next epoch starts.

        The rest of a stream's epoch runs first.
        """
        return self._delivery.built.state(self._next())
