"""The order of batches, computed without threads and without data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Permutation: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

SHUFFLES = ("repeat", "reseed", "itemwise", "batchwise")


@dataclass(frozen=True)
class GroupOrder:
    """The order of one group's items and batches in each epoch."""

    items: int
    batch_size: int
    seed: int
    shuffle_first: bool
    shuffle_later: str
    drop_last: bool = True

    @property
    def batch_count(self) -> int:
        """How many batches an epoch has."""
        whole, left = divmod(self.items, self.batch_size)
        return whole if self.drop_last or left == 0 else whole + 1

    @property
    def reseeds(self) -> bool:
        """Whether a batch differs from one epoch to the next."""
        return self.shuffle_later in ("reseed", "itemwise")

    def batch_index(self, epoch: int, cursor: int, shuffled: Permutations) -> int:
        """The number of the group's batch at position ``cursor`` of ``epoch``."""
        if epoch == 0 or self.shuffle_later != "batchwise":
            return cursor
        return int(shuffled.batches(self.seed + epoch, self.batch_count)[cursor])

    def indices(self, epoch: int, index: int, shuffled: Permutations) -> Sequence[int]:
        """The indices of the items of batch ``index``."""
        start = index * self.batch_size
        end = min(start + self.batch_size, self.items)
        if epoch > 0 and self.shuffle_later == "itemwise":
            order = shuffled.items(self.seed + epoch, self.items)
        elif self.shuffle_first:
            order = shuffled.items(self.seed, self.items)
        else:
            return range(start, end)
        return tuple(order[start:end].tolist())

    def batch_seed(self, epoch: int, index: int) -> int:
        """The seed of the batch's first item. Each further item's seed is one more."""
        seed = self.seed + index * self.batch_size
        if self.reseeds:
            seed += epoch * self.batch_count * self.batch_size
        return seed


class Permutations:
    """Caches one permutation of a group's items and one of its batches."""

    def __init__(self) -> None:
        self._items: tuple[int, Permutation] | None = None
        self._batches: tuple[int, Permutation] | None = None

    def items(self, seed: int, length: int) -> Permutation:
        """The order of the group's items under ``seed``."""
        if self._items is None or self._items[0] != seed:
            self._items = None  # frees the old permutation before computing another
            self._items = seed, _permutation(seed, length)
        return self._items[1]

    def batches(self, seed: int, length: int) -> Permutation:
        """The order of the group's batches under ``seed``."""
        if self._batches is None or self._batches[0] != seed:
            self._batches = seed, _permutation(seed, length)
        return self._batches[1]


def _permutation(seed: int, length: int) -> Permutation:
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
        per_epoch = self.batches_per_epoch
        groups, cursors = self._epoch_order()
        shuffled = [Permutations() for _ in (*self.training, *self.validating)]
        number = self.first
        validations = 0
        while self.last is None or number < self.last:
            epoch, within = divmod(number, per_epoch)
            group = groups[within]
            order = self.training[group]
            index = order.batch_index(epoch, cursors[within], shuffled[group])
            yield Step(
                group=group,
                index=index,
                indices=order.indices(epoch, index, shuffled[group]),
                seed=order.batch_seed(epoch, index),
                epoch=epoch,
                epoch_batch=within,
                batch_num=number,
            )
            number += 1
            if self._is_due(number):
                yield from self._validation(validations, shuffled)
                validations += 1

    def _validation(self, epoch: int, shuffled: list[Permutations]) -> Iterator[Step]:
        within = 0
        for group, order in enumerate(self.validating, len(self.training)):
            for index in range(order.batch_count):
                yield Step(
                    group=group,
                    index=index,
                    indices=order.indices(0, index, shuffled[group]),
                    seed=None,
                    epoch=epoch,
                    epoch_batch=within,
                    batch_num=epoch * self.batches_per_validation + within,
                )
                within += 1

    def _is_due(self, number: int) -> bool:
        if self.validation is None:
            return False
        mode, interval = self.validation
        if mode == "batch":
            return number % interval == 0
        epochs, within = divmod(number, self.batches_per_epoch)
        return within == 0 and epochs % interval == 0

    def _epoch_order(self) -> tuple[list[int], list[int]]:
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
        return groups.tolist(), cursors.tolist()
