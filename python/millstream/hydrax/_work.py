"""The loader processes and the function that they call."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from millstream._core.errors import ITEM

if TYPE_CHECKING:
    from millstream._workers.executor import Executor, PendingBatch
    from millstream.hydrax._groups import DataGroup
    from millstream.hydrax._schedule import Step

LoaderFunc: TypeAlias = Callable[
    [Any, Mapping[str, "np.ndarray[Any, Any]"], int | None], dict[str, Any] | None
]
"""``(descriptor, arrays, seed) -> additional data or None``."""

StartupFunc: TypeAlias = Callable[[], None]
"""Called once in each loader process."""

Additional: TypeAlias = dict[str, list[Any]]

_DANGLING = (
    "loader memory has dangling reference: loader_func kept a view of the array "
    "{name!r} after it returned. Later writes to it do not reach the batch. Copy the "
    "array if you need to keep it."
)


def is_worker() -> bool:
    """Whether this is a loader process, where no Dataloader can be created."""
    return bool(os.environ.get("MILLSTREAM_WORKER"))


@dataclass(frozen=True)
class Fill:
    """Calls the user's function for one item of several groups.

    ``index`` counts the items of all groups; group g starts at ``starts[g]``. ``seed``
    is relative to the group's seed, because a group's seed may exceed 64 bits. Returns
    None, or ``(additional data, remarks)``. A remark is the text of a warning.
    """

    function: LoaderFunc
    groups: Sequence[Sequence[Any]] = field(repr=False)
    starts: tuple[int, ...]
    seeds: tuple[int, ...]

    def __call__(
        self, index: int, arrays: Mapping[str, np.ndarray[Any, Any]], seed: int | None
    ) -> tuple[dict[str, Any] | None, list[str]] | None:
        group, number = self._place(index)
        data = self.groups[group][number]
        before = _reference_counts(arrays)
        additional = self.function(
            data, arrays, None if seed is None else self.seeds[group] + seed
        )
        after = _reference_counts(arrays)
        remarks = [
            _DANGLING.format(name=name)
            for name, then, now in zip(arrays, before, after, strict=True)
            if now > then
        ]
        if additional is not None:
            remarks += _remarks(additional)
        return (additional, remarks) if additional or remarks else None

    def tell_item(self, error: BaseException, index: int) -> None:
        """Adds a note to ``error`` with the number and the descriptor of the item."""
        group, number = self._place(index)
        if isinstance(error, Exception):
            setattr(error, ITEM, number)
        text = f"hydrax: this error was raised for item {number} of its group"
        with contextlib.suppress(Exception):  # reading the descriptor may have failed
            text += f", {reprlib.repr(self.groups[group][number])}"
        error.add_note(text)

    def _place(self, index: int) -> tuple[int, int]:
        """The group of an item and the item's number within it."""
        group = bisect.bisect_right(self.starts, index) - 1
        return group, index - self.starts[group]


def _reference_counts(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[int]:
    """The number of references to each array and to its memory."""
    return [
        sys.getrefcount(array) + sys.getrefcount(array.base)
        for array in arrays.values()
    ]


def _remarks(additional: Any) -> list[str]:
    if not isinstance(additional, dict):
        raise TypeError(
            f"additional data has non-dict type {type(additional).__name__}: "
            "loader_func must return a dict or None."
        )
    return [
        f"additional data {key!r} has array type {type(value).__name__}, which is "
        "pickled. Declare it in the group's loader_arrays to avoid the copy."
        for key, value in additional.items()
        if isinstance(value, np.ndarray) or type(value).__module__.startswith("jax")
    ]


def merged(host_values: list[Any], rows: int) -> tuple[Additional, list[str]]:
    """The additional data of all items as lists by key, and the distinct remarks."""
    additional: Additional = {}
    remarks: dict[str, None] = {}
    for row, returned in enumerate(host_values[:rows]):
        if returned is not None:
            for key, value in (returned[0] or {}).items():
                additional.setdefault(key, [None] * rows)[row] = value
            remarks.update(dict.fromkeys(returned[1]))
    return additional, list(remarks)


class LoaderProcesses:
    """The loader processes of a run. Groups with equal arrays share an `Executor`.

    ``options`` are those of the `Executor`.
    """

    def __init__(
        self,
        function: LoaderFunc,
        groups: Sequence[DataGroup[Any]],
        startup: StartupFunc | None,
        **options: Any,
    ) -> None:
        self._places: dict[int, tuple[Executor, int, int]] = {}
        alike: dict[Any, list[int]] = {}
        for number, group in enumerate(groups):
            if group.loader_layouts is not None:
                alike.setdefault(_fields(group), []).append(number)
        for fields, numbers in alike.items():
            some = [groups[number] for number in numbers]
            fill = Fill(
                function,
                [group._data for group in some],
                tuple(itertools.accumulate(map(len, some), initial=0)),
                tuple(group._order.seed for group in some),
            )
            rows = max(group.batch_size for group in some)
            executor = _started(fill, fields, rows, startup, options)
            places = zip(numbers, fill.starts, fill.seeds, strict=False)
            for number, start, seed in places:
                self._places[number] = executor, start, seed

    @property
    def pids(self) -> list[int]:
        """The process ids of the loader processes that are running."""
        return [pid for executor in self._executors for pid in executor.pids]

    @property
    def _executors(self) -> set[Executor]:
        return {executor for executor, _, _ in self._places.values()}

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
        self._places.clear()


def _started(
    fill: Fill,
    fields: Any,
    rows: int,
    startup: StartupFunc | None,
    options: dict[str, Any],
) -> Executor:
    from millstream._workers.executor import Executor
    from millstream._workers.tasks import FillTask

    task = FillTask(fill, range(fill.starts[-1]), startup)
    try:
        return Executor(task, fields, rows, worker_kind="process", **options)
    except TypeError:  # the data cannot be pickled
        if all(type(data) in (list, tuple, range) for data in fill.groups):
            raise
    # A sequence that holds an open file cannot be pickled, but its items may be.
    items = replace(fill, groups=[list(data) for data in fill.groups])
    return _started(items, fields, rows, startup, options)


def _fields(group: DataGroup[Any]) -> tuple[Any, ...]:
    """The name, the dtype and the shape of each array that the loaders fill."""
    assert group.loader_layouts is not None
    return tuple(
        (name, stored, shape[1:])
        for name, (shape, stored, *_) in group.loader_layouts.items()
    )
