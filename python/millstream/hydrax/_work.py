"""The loader processes and the task that they run."""

from __future__ import annotations

import bisect
import itertools
import os
import pickle
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from millstream._core.errors import ITEM, copy_notes

if TYPE_CHECKING:
    from millstream._workers.executor import Executor, PendingBatch
    from millstream.hydrax._groups import DataGroup
    from millstream.hydrax._schedule import Step

LoaderFunc: TypeAlias = Callable[
    [Any, Mapping[str, "np.ndarray[Any, Any]"], int | None], dict[str, Any] | None
]

_DANGLING = (
    "loader memory has a dangling reference: loader_func kept a view of the array "
    "{name!r} after it returned. Later writes to it do not reach the batch. Copy the "
    "array if you need to keep it."
)


def is_of_an_item(error: Exception) -> bool:
    """Whether an item caused the error, and not the failure of a loader process."""
    return hasattr(error, ITEM)


def is_worker() -> bool:
    """Whether this is a loader process, where no Dataloader can be created."""
    return bool(os.environ.get("MILLSTREAM_WORKER"))


@dataclass(frozen=True)
class JoinedGroups:
    """The descriptors of several groups as one sequence.

    An element is ``(group, number within the group, descriptor)``.
    """

    groups: tuple[Sequence[Any], ...] = field(repr=False)
    starts: tuple[int, ...]

    @classmethod
    def of(cls, groups: Iterable[Sequence[Any]]) -> JoinedGroups:
        """Joins the groups in the order given."""
        joined = tuple(groups)
        lengths = (len(group) for group in joined)
        starts = tuple(itertools.accumulate(lengths, initial=0))
        return cls(joined, starts)

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> tuple[int, int, Any]:
        group = bisect.bisect_right(self.starts, index) - 1
        number = index - self.starts[group]
        return group, number, self.groups[group][number]


@dataclass(frozen=True)
class Fill:
    """Calls the user's function for one item.

    ``seed`` is relative to the group's seed, because a group's seed may exceed 64 bits.
    Returns None, or ``(additional data, remarks)``. A remark is the text of a warning.
    """

    function: LoaderFunc
    seeds: tuple[int, ...]

    def __call__(
        self,
        item: tuple[int, int, Any],
        arrays: Mapping[str, np.ndarray[Any, Any]],
        seed: int | None,
    ) -> tuple[dict[str, Any] | None, tuple[str, ...]] | None:
        group, _, data = item
        if seed is not None:
            seed = self.seeds[group] + int(seed)
        before = _reference_counts(arrays)
        remarks: tuple[str, ...] = ()
        try:
            additional = self.function(data, arrays, seed)
            if additional is not None:
                remarks = _checked(additional)
        except Exception as error:
            self.tell_item(error, item)
            stand_in = _stand_in(error)
            if stand_in is None:
                raise
            raise stand_in from error
        if before != (after := _reference_counts(arrays)):
            remarks += tuple(
                _DANGLING.format(name=name)
                for name, then, now in zip(arrays, before, after, strict=True)
                if now > then
            )
        if not additional and not remarks:
            return None
        return additional, remarks

    def tell_item(self, error: BaseException, item: tuple[int, int, Any]) -> None:
        """Adds a note to ``error`` with the number and the descriptor of the item."""
        _, number, data = item
        setattr(error, ITEM, number)
        error.add_note(
            f"hydrax: this error was raised for item {number} of its group, "
            f"{reprlib.repr(data)}"
        )


def _stand_in(error: Exception) -> Exception | None:
    """A ``RuntimeError`` with the error's text, if the error cannot be pickled."""
    kind = type(error)
    if kind.__module__ == "__main__":  # the worker sends its class by value
        return None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        stand_in = RuntimeError(f"{kind.__name__}: {error}")
        copy_notes(error, stand_in)
        return stand_in
    return None


def _reference_counts(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[int]:
    """The number of references to each array and to its memory."""
    return [
        sys.getrefcount(array) + sys.getrefcount(array.base)
        for array in arrays.values()
    ]


def _checked(additional: Any) -> tuple[str, ...]:
    if not isinstance(additional, dict):
        raise TypeError(
            "loader_func must return a dict of additional data or None, not "
            f"{type(additional).__name__}."
        )
    return tuple(
        f"additional data {key!r} has the array type {type(value).__name__}, which is "
        "pickled. Declare it in the group's loader_arrays to avoid the copy."
        for key, value in additional.items()
        if isinstance(value, np.ndarray) or type(value).__module__.startswith("jax")
    )


class GroupExecutors:
    """The loader processes of a run: ``count`` for each distinct array layout."""

    def __init__(
        self,
        function: LoaderFunc,
        groups: Sequence[DataGroup[Any]],
        *,
        count: int,
        nice: int,
        startup: Callable[[], None] | None,
        timeout: float | None,
    ) -> None:
        self._places: dict[int, tuple[Executor, int, int]] = {}
        self._executors: list[Executor] = []
        try:
            for numbers in _by_layout(groups).values():
                some = [groups[number] for number in numbers]
                executor, starts = _executor(
                    function, some, count, nice=nice, startup=startup, timeout=timeout
                )
                self._executors.append(executor)
                for number, start in zip(numbers, starts, strict=False):
                    self._places[number] = executor, start, groups[number]._order.seed
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the loader processes that are running."""
        return [pid for executor in self._executors for pid in executor.pids]

    def submit(self, step: Step) -> PendingBatch:
        """Queues a batch."""
        executor, start, base = self._places[step.group]
        indices = np.asarray(step.indices, np.int64) + start
        if step.seed is None:
            return executor.submit(indices)
        first = step.seed - base
        return executor.submit(indices, np.arange(first, first + len(indices)))

    def close(self) -> None:
        """Ends the processes and discards pending batches."""
        for executor in self._executors:
            executor.close()
        self._executors.clear()
        self._places.clear()


def _by_layout(groups: Sequence[DataGroup[Any]]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for number, group in enumerate(groups):
        if group.loader_layouts is not None:
            key = tuple(
                (name, layout[0][1:], layout[1])
                for name, layout in group.loader_layouts.items()
            )
            found.setdefault(key, []).append(number)
    return found


def _executor(
    function: LoaderFunc,
    groups: list[DataGroup[Any]],
    count: int,
    *,
    nice: int,
    startup: Callable[[], None] | None,
    timeout: float | None,
) -> tuple[Executor, tuple[int, ...]]:
    from millstream._workers.executor import Executor
    from millstream._workers.tasks import FillTask

    joined = JoinedGroups.of(group._data for group in groups)
    fill = Fill(function, tuple(group._order.seed for group in groups))
    fields = [
        (name, layout[1], layout[0][1:])
        for name, layout in (groups[0].loader_layouts or {}).items()
    ]

    def start(data: JoinedGroups) -> Executor:
        return Executor(
            FillTask(fill, data, startup),
            fields,
            max(group.batch_size for group in groups),
            workers=count,
            worker_kind="process",
            timeout=timeout,
            nice=nice,
        )

    try:
        return start(joined), joined.starts
    except TypeError:  # the data cannot be pickled
        if all(type(group) in (list, tuple, range) for group in joined.groups):
            raise
        # A sequence that holds an open file cannot be pickled, but its items may be.
        items = JoinedGroups.of(list(group) for group in joined.groups)
        return start(items), joined.starts
