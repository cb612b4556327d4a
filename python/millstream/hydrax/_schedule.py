"""The order of batches, computed without threads and without data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SHUFFLES = ("repeat", "reseed", "itemwise", "batchwise")


@dataclass(frozen=True)
class GroupOrder:
    """The order of one group's items and batches in each epoch."""

    data_len: int
    batch_size: int
    seed: int
    shuffle_first: bool
    shuffle_later: str
    drop_last: bool = True

    @property
    def batch_count(self) -> int:
        """How many batches an epoch has."""
        whole, left = divmod(self.data_len, self.batch_size)
        return whole if self.drop_last or left == 0 else whole + 1

    @property
    def reseeds(self) -> bool:
        """Whether a batch differs from one epoch to the next."""
        return self.shuffle_later in ("reseed", "itemwise")

    def epoch(self, epoch: int) -> tuple[Any, Any]:
        """The order of the items and the order of the batches: ranges or arrays."""
        items: Any = range(self.data_len)
        batches: Any = range(self.batch_count)
        if epoch > 0 and self.shuffle_later == "itemwise":
            items = _permutation(self.seed + epoch, self.data_len)
        elif self.shuffle_first:
            items = _permutation(self.seed, self.data_len)
        if epoch > 0 and self.shuffle_later == "batchwise":
            batches = _permutation(self.seed + epoch, self.batch_count)
        return items, batches

    def indices(self, items: Any, index: int) -> Sequence[int]:
        """The indices of the items of batch ``index``, for the order ``items``."""
        chosen = items[index * self.batch_size : (index + 1) * self.batch_size]
        return chosen if isinstance(chosen, range) else tuple(chosen.tolist())

    def batch_seed(self, epoch: int, index: int) -> int:
        """The seed of the batch's first item. Each further item's seed is one more."""
        rounds = epoch * self.batch_count if self.reseeds else 0
        return self.seed + (rounds + index) * self.batch_size


def _permutation(seed: int, length: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.Generator(np.random.PCG64(seed)).permutation(length)


@dataclass(frozen=True)
class Step:
    """One batch to load.

    ``group`` counts the training groups first, then the validation groups. For
    validation ``seed`` is None, and ``epoch``, ``epoch_batch`` and ``batch_num`` count
    from the run's first validation.
    """

    group: int
    index: int
    indices: Sequence[int]
    seed: int | None
    epoch: int
    epoch_batch: int
    batch_num: int

    def __str__(self) -> str:
        kind = "validation batch" if self.seed is None else "batch"
        return (
            f"{kind} {self.batch_num} (epoch {self.epoch}, number {self.epoch_batch})"
        )


@dataclass(frozen=True)
class Schedule:
    """The batches of a run, from ``first`` up to but not including ``last``.

    ``validation`` is ``(mode, interval)``: validation follows every ``interval`` epochs
    or batches, counted from epoch 0.
    """

    training: tuple[GroupOrder, ...]
    validating: tuple[GroupOrder, ...] = ()
    validation: tuple[str, int] | None = None
    first: int = 0
    last: int | None = None
    interleave: bool = True

    @property
    def batches_per_epoch(self) -> int:
        """How many training batches an epoch has."""
        return sum(group.batch_count for group in self.training)

    @property
    def batches_per_validation(self) -> int:
        """How many batches one validation has."""
        return sum(group.batch_count for group in self.validating)

    def steps(self) -> Iterator[Step]:
        """The batches of the run in order."""
        validations = itertools.count()
        cursors = self._epoch_order()
        for epoch in itertools.count(self.first // self.batches_per_epoch):
            for step in self._epoch(epoch, cursors):
                if self.last is not None and step.batch_num >= self.last:
                    return
                yield step
                if self._is_due(step.batch_num + 1):
                    yield from self._validation(next(validations))

    def _epoch(self, epoch: int, cursors: list[tuple[int, int]]) -> Iterator[Step]:
        """The training batches of an epoch, from ``first`` on."""
        orders = [group.epoch(epoch) for group in self.training]
        start = epoch * len(cursors)
        for within in range(max(self.first - start, 0), len(cursors)):
            group, cursor = cursors[within]
            items, batches = orders[group]
            index, order = int(batches[cursor]), self.training[group]
            indices = order.indices(items, index)
            seed = order.batch_seed(epoch, index)
            yield Step(group, index, indices, seed, epoch, within, start + within)

    def _validation(self, epoch: int) -> Iterator[Step]:
        start = epoch * self.batches_per_validation
        within = itertools.count()
        for group, order in enumerate(self.validating, len(self.training)):
            items, batches = order.epoch(0)
            for index in batches:
                number = next(within)
                indices = order.indices(items, index)
                yield Step(group, index, indices, None, epoch, number, start + number)

    def _is_due(self, number: int) -> bool:
        """Whether validation follows the first ``number`` training batches."""
        if self.validation is None:
            return False
        mode, interval = self.validation
        per_interval = interval * (self.batches_per_epoch if mode == "epoch" else 1)
        return number % per_interval == 0

    def _epoch_order(self) -> list[tuple[int, int]]:
        """The group of each batch of an epoch, and its number within that group.

        With ``interleave``, the next batch is from the group that has delivered the
        smallest fraction of its batches. The first such group wins a tie.
        """
        counts = [group.batch_count for group in self.training]
        groups = np.repeat(np.arange(len(counts)), counts)
        cursors = np.concatenate([np.arange(count) for count in counts])
        if self.interleave:
            order = np.lexsort((groups, cursors / np.array(counts)[groups]))
            groups, cursors = groups[order], cursors[order]
        return list(zip(groups.tolist(), cursors.tolist(), strict=True))
