"""What runs in loader processes, and the processes themselves."""

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
    "{name!r} after it returned, and what it writes there is in no batch"
)


def is_of_an_item(error: Exception) -> bool:
    """Whether the loader function raised it for an item, and not a worker's start."""
    return hasattr(error, ITEM)


def is_worker() -> bool:
    """Whether this is a loader process; a Dataloader cannot be made in one."""
    return bool(os.environ.get("MILLSTREAM_WORKER"))


@dataclass(frozen=True)
class Joined:
    """The descriptors of several groups as one sequence.

    An element is ``(group, number within the group, descriptor)``.
    """

    parts: tuple[Sequence[Any], ...] = field(repr=False)
    starts: tuple[int, ...]

    @classmethod
    def of(cls, parts: Iterable[Sequence[Any]]) -> Joined:
        """The parts one after the other."""
        held = tuple(parts)
        lengths = (len(part) for part in held)
        starts = tuple(itertools.accumulate(lengths, initial=0))
        return cls(held, starts)

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int) -> tuple[int, int, Any]:
        part = bisect.bisect_right(self.starts, index) - 1
        number = index - self.starts[part]
        return part, number, self.parts[part][number]


@dataclass(frozen=True)
class Fill:
    """Calls the user's function for one item.

    Seeds travel as distances from the group's own seed, which may be any whole number.
    What comes back is None, or ``(additional data, remarks)``.
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
        before = _held(arrays)
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
        if before != (after := _held(arrays)):
            remarks += tuple(
                _DANGLING.format(name=name)
                for name, then, now in zip(arrays, before, after, strict=True)
                if now > then
            )
        if not additional and not remarks:
            return None
        return additional, remarks

    def tell_item(self, error: BaseException, item: tuple[int, int, Any]) -> None:
        """Adds to an error which item it is of."""
        _, number, data = item
        setattr(error, ITEM, number)
        error.add_note(
            f"hydrax: this was item {number} of its group, {reprlib.repr(data)}"
        )


def _stand_in(error: Exception) -> Exception | None:
    """One with the words of an error that cannot be sent to another process."""
    kind = type(error)
    if kind.__module__ == "__main__":  # it is sent by value, as its function was
        return None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        stand_in = RuntimeError(f"{kind.__name__}: {error}")
        copy_notes(error, stand_in)
        return stand_in
    return None


def _held(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[int]:
    """How often each array is referred to, itself and by views of its memory."""
    return [
        sys.getrefcount(array) + sys.getrefcount(array.base)
        for array in arrays.values()
    ]


def _checked(additional: Any) -> tuple[str, ...]:
    if not isinstance(additional, dict):
        raise TypeError(
            "loader_func must return a dict of additional data or None, not "
            f"{type(additional).__name__}"
        )
    return tuple(
        f"additional data {key!r} has the array type {type(value).__name__}: an array "
        "of the group's loader_arrays is handed over without a copy"
        for key, value in additional.items()
        if isinstance(value, np.ndarray) or type(value).__module__.startswith("jax")
    )


class GroupExecutors:
    """The loader processes of a run: so many for each layout that its groups have."""

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
        """The process ids of the loaders that run now."""
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
        """Ends the processes; batches that were not waited for are given up."""
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

    joined = Joined.of(group._data for group in groups)
    fill = Fill(function, tuple(group._order.seed for group in groups))
    fields = [
        (name, layout[1], layout[0][1:])
        for name, layout in (groups[0].loader_layouts or {}).items()
    ]

    def made(data: Joined) -> Executor:
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
        return made(joined), joined.starts
    except TypeError:  # it cannot be sent
        if all(type(part) in (list, tuple, range) for part in joined.parts):
            raise
        # A sequence may hold what cannot be sent, such as a file, where its items can.
        return made(Joined.of(list(part) for part in joined.parts)), joined.starts
