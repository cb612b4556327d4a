"""Tasks, which call a user's function to make rows of a batch.

Worker processes import this module, so it must not import jax.
"""

from __future__ import annotations

import pickle
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from millstream import _engine
from millstream._core.errors import stand_in
from millstream._workers.host_values import Encoded, decoded
from millstream._workers.randomness import random_value
from millstream._workers.rows import FieldSpec, Rows, unflatten, writer

# How many samples an error names if any of them may have caused it.
_MAX_NAMED = 8


class Chunk(NamedTuple):
    """Rows of a batch that one worker makes.

    The task writes the rows to ``outputs``. While it makes row k, it sets ``row[0]`` to
    k, so that errors can name the sample. While it makes the first n rows in one call,
    it sets ``row[0]`` to -n.
    """

    indices: np.ndarray
    seeds: np.ndarray | None
    inputs: Rows
    outputs: Rows
    row: np.ndarray
    host_values: Sequence[Encoded | None] = ()
    """The host values of the input, one per row; empty if there are none."""


@dataclass(frozen=True)
class Task:
    """A user's function and how to call it. Workers receive it as a pickle.

    ``inputs`` are the fields that it reads, ``outputs`` the fields that it writes.
    """

    exposes_outputs: ClassVar[bool] = False
    """Whether the function receives the output arrays and may keep them."""

    whole: ClassVar[bool] = False
    """Whether one worker makes all rows of a batch."""

    inputs: tuple[FieldSpec, ...] = field(default=(), kw_only=True)
    outputs: tuple[FieldSpec, ...] = field(default=(), kw_only=True)
    length: int = field(default=0, kw_only=True)
    """The number of samples, if the task belongs to a source; it is for errors."""

    def start(self) -> None:
        """Prepares a worker. Each worker calls it once."""

    def make(self, chunk: Chunk) -> list[Any] | None:
        """Makes the rows of a chunk. Returns one host value per row, or None."""
        raise NotImplementedError

    def add_notes(self, error: BaseException, index: int) -> None:
        """Adds notes about sample ``index`` to an error."""


@dataclass(frozen=True)
class SampleTask(Task):
    """``fn(index)`` returns a sample. Its keys ``host_fields`` hold host values.

    ``wants`` is the name of the function's random argument, or empty.
    """

    fn: Callable[..., Any]
    tree: Any
    host_fields: tuple[str, ...] = ()
    wants: str = ""

    def make(self, chunk: Chunk) -> list[Any] | None:
        rows = writer(chunk.outputs, self.outputs, self.tree)
        if not self.host_fields:
            self._write(rows, chunk)
            return None
        host_values = []
        for k, sample in enumerate(self._samples(chunk)):
            arrays, values = _split_host_fields(sample, self.host_fields)
            host_values.append(values)
            rows.put(k, arrays)
        return host_values

    def _write(self, rows: _engine.RowWriter, chunk: Chunk) -> None:
        rows.put_all(self._one(chunk), chunk.indices, chunk.row)

    def _samples(self, chunk: Chunk) -> Iterator[Any]:
        one = self._one(chunk)
        for k, index in enumerate(chunk.indices.tolist()):
            chunk.row[0] = k
            yield one(index)

    def _one(self, chunk: Chunk) -> Callable[[int], Any]:
        """Returns the function to call with each index of the chunk, in order."""
        if not self.wants or chunk.seeds is None:
            return self.fn
        seeds = iter(chunk.seeds.tolist())
        return lambda index: self.fn(index, **drawn(self.wants, next(seeds)))


@dataclass(frozen=True)
class SamplesTask(SampleTask):
    """``fn(indices)`` returns a list of samples."""

    def _write(self, rows: _engine.RowWriter, chunk: Chunk) -> None:
        for k, sample in enumerate(self._samples(chunk)):
            rows.put(k, sample)

    def _samples(self, chunk: Chunk) -> Iterator[Any]:
        indices, row = chunk.indices.tolist(), chunk.row
        if len(indices) > 1:
            row[0] = -len(indices)
        samples = self.fn(indices)
        if len(samples) != len(indices):
            raise ValueError(
                f"__getitems__ returned {len(samples)} samples for {len(indices)} "
                "indices. It must return one sample for each index."
            )
        for k, sample in enumerate(samples):
            row[0] = k
            yield sample


def _split_host_fields(
    sample: Any, keys: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(sample, Mapping):
        raise ValueError(f"expected a dict, found {type(sample).__name__}")
    missing = [key for key in keys if key not in sample]
    if missing:
        raise ValueError(f"expected keys {missing}, found {sorted(sample)}")
    arrays = {key: value for key, value in sample.items() if key not in keys}
    return arrays, {key: sample[key] for key in keys}


@dataclass(frozen=True)
class MapTask(Task):
    """``fn(sample)`` returns a sample.

    ``wants`` is the name of the function's random argument, or empty. ``before`` and
    ``after`` are pytrees of the positions of the input and output fields. With
    ``takes_host_values``, the host values of a row are keys of ``sample``, and padded
    rows are zero without a call. The keys ``host_fields`` of the result hold host
    values.
    """

    fn: Callable[..., Any]
    before: Any
    after: Any
    wants: str = ""
    takes_host_values: bool = False
    host_fields: tuple[str, ...] = ()

    def make(self, chunk: Chunk) -> list[Any] | None:
        seeds = (
            [0] * len(chunk.indices) if chunk.seeds is None else chunk.seeds.tolist()
        )
        rows = writer(chunk.outputs, self.outputs, self.after)
        indices = chunk.indices.tolist()
        host_values: list[Any] = [None] * len(indices)
        for k, seed in enumerate(seeds):
            chunk.row[0] = k
            is_padding = indices[k] < 0
            if is_padding and self.takes_host_values:
                for output in chunk.outputs:
                    output[k] = 0
                continue
            # The ellipsis makes a scalar an array instead of a NumPy scalar.
            sample = unflatten(self.before, [array[k, ...] for array in chunk.inputs])
            if self.takes_host_values:
                value = chunk.host_values[k]
                assert value is not None  # the earlier stage returned one
                sample = {**sample, **decoded(value)}
            result = self.fn(sample, **drawn(self.wants, seed))
            if self.host_fields:
                result, values = _split_host_fields(result, self.host_fields)
                host_values[k] = None if is_padding else values
            rows.put(k, result)
        return host_values if self.host_fields else None


def drawn(wants: str, seed: int) -> dict[str, Any]:
    """Returns the keyword argument ``wants``, if any, for one sample."""
    return {wants: random_value(wants, seed)} if wants else {}


@dataclass(frozen=True)
class FillTask(Task):
    """``fn(data[i], arrays, seed)`` writes a sample into the arrays of its row.

    ``clear`` sets the arrays to zero before each call. ``returns_value`` makes the
    return value the host value of the row. Each worker calls ``startup()`` once.
    ``wants`` says what the third argument is: "seed", "key" or "rng".
    """

    exposes_outputs: ClassVar[bool] = True

    fn: Callable[[Any, Mapping[str, np.ndarray], Any], Any]
    data: Any
    startup: Callable[[], None] | None = None
    clear: bool = True
    returns_value: bool = True
    wants: str = "seed"

    def start(self) -> None:
        if self.startup is not None:
            self.startup()

    def make(self, chunk: Chunk) -> list[Any] | None:
        # Create all views first: writing a large sample evicts Python's own data from
        # the CPU caches.
        samples = [
            _views(chunk.outputs, self.outputs, k) for k in range(len(chunk.indices))
        ]
        indices = chunk.indices.tolist()
        seeds = [None] * len(indices) if chunk.seeds is None else chunk.seeds.tolist()
        host_values: list[Any] = []
        for k, (index, arrays, seed) in enumerate(
            zip(indices, samples, seeds, strict=True)
        ):
            chunk.row[0] = k
            if self.clear or index < 0:
                for array in arrays.values():
                    array.fill(0)
            if index < 0:  # padding
                host_values.append(None)
                continue
            item = self.data[index]
            try:
                value = self.fn(item, arrays, random_value(self.wants, seed))
            except KeyError as error:
                error.add_note(f"millstream: the arrays are named {list(arrays)}")
                raise
            host_values.append(value if self.returns_value else None)
        return host_values if any(value is not None for value in host_values) else None

    def add_notes(self, error: BaseException, index: int) -> None:
        tell_item = getattr(self.fn, "tell_item", None)
        if tell_item is not None:
            tell_item(error, self.data[index])


def _views(
    outputs: Rows, columns: tuple[FieldSpec, ...], k: int
) -> Mapping[str, np.ndarray]:
    """Returns views of row k by field name."""
    # The ellipsis makes a scalar a view instead of a copy.
    pairs = zip(columns, outputs, strict=True)
    return MappingProxyType({column.name: rows[k, ...] for column, rows in pairs})


@dataclass(frozen=True)
class ItemTask(Task):
    """``fn(i)``, or ``fn[i]`` if ``fn`` is not callable, returns a host value.

    If ``fn`` has ``__getitems__``, it returns the list of several host values.
    """

    fn: Any

    def make(self, chunk: Chunk) -> list[Any] | None:
        indices = chunk.indices.tolist()
        several = getattr(self.fn, "__getitems__", None)
        if several is not None:
            chunk.row[0] = -len(indices) if len(indices) > 1 else 0
            return list(several(indices))
        item = self.fn if callable(self.fn) else self.fn.__getitem__
        values = []
        for k, index in enumerate(indices):
            chunk.row[0] = k
            values.append(item(index))
        return values


def run(
    task: Task,
    indices: np.ndarray,
    seeds: np.ndarray | None,
    inputs: Rows,
    outputs: Rows,
    row: np.ndarray,
    host_values: Sequence[Encoded | None] = (),
    *,
    in_process: bool = False,
) -> list[Any] | None:
    """Makes the rows of one chunk. Adds the sample to errors as a note.

    ``in_process`` says whether this is a worker process. Otherwise, the main thread
    calls this function only for a loop of its own, and Ctrl-C must end that loop.
    """
    try:
        return task.make(Chunk(indices, seeds, inputs, outputs, row, host_values))
    except BaseException as error:
        is_main = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and is_main and not in_process:
            raise
        other = _with_sample(task, error, indices, row)
        if other is None:
            raise
        raise other from error


def pickled_host_values(
    task: Task, indices: np.ndarray, host_values: list[Any] | None, row: np.ndarray
) -> list[bytes]:
    """Pickles each host value of a chunk. Adds the sample to errors as a note."""
    pickled = []
    for k, value in enumerate(host_values or ()):
        row[0] = k
        try:
            pickled.append(pickle.dumps(value, protocol=5))
        except BaseException as error:
            other = _with_sample(task, error, indices, row)
            if other is None:
                raise
            raise other from error
    return pickled


def _with_sample(
    task: Task, error: BaseException, indices: np.ndarray, row: np.ndarray
) -> Exception | None:
    """Adds the sample to ``error`` as a note. Returns its stand-in, if it needs one."""
    sample = _sample_name(indices, row)
    only = int(indices[row[0]]) if row[0] >= 0 else None
    if only is not None:
        task.add_notes(error, only)
    error.add_note(f"millstream: this error was raised for {sample}")
    if isinstance(error, IndexError) and task.length:
        error.add_note(
            f"millstream: the source has {task.length} samples, which is its length "
            "argument or len() of the data set. If the data set has fewer, correct "
            "this number."
        )
    return stand_in(error, f"for {sample}", only)


def _sample_name(indices: np.ndarray, row: np.ndarray) -> str:
    at = int(row[0])
    if at >= 0:
        return f"sample {int(indices[at])}"
    listed = ", ".join(map(str, indices[:-at][:_MAX_NAMED].tolist()))
    more = ", ..." if -at > _MAX_NAMED else ""
    return f"one of samples [{listed}{more}]"


def stack_of(thread: int) -> str:
    """Returns the Python stack of a thread as text."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame))
