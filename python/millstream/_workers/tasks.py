"""What workers do: functions of the user's, called for rows of a batch.

Runs in worker processes too, so nothing here imports jax.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from millstream import _engine
from millstream._core.arguments import check_unmasked
from millstream._core.errors import stand_in

# Samples that are named where it may be any of them.
_LISTED = 8

Rows = list[np.ndarray]
"""Columns of a chunk: arrays with the rows first."""


class Chunk(NamedTuple):
    """Rows to make: their samples, their seeds if there are any, what there is of them,
    where they belong, and a cell that says which of them is being made, or -n while
    the first n are made at once.
    """

    indices: np.ndarray
    seeds: np.ndarray | None
    given: Rows
    made: Rows
    row: np.ndarray


@dataclass(frozen=True)
class FieldSpec:
    """A field of a sample: its name, the name of its dtype, and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    @property
    def spec(self) -> tuple[str, str, list[int]]:
        """The same as the engine takes it."""
        return self.name, self.dtype, list(self.shape)


def writer(rows: Rows, columns: tuple[FieldSpec, ...], tree: Any) -> _engine.RowWriter:
    """Writes samples, trees of that kind, to the rows of their fields.

    It raises ``ValueError`` where a value has another shape or would lose what it
    holds.
    """

    def slowly(k: int, sample: Any) -> None:
        leaves = leaves_of(sample, tree)
        for field_rows, column, leaf in zip(rows, columns, leaves, strict=True):
            _put(field_rows, k, leaf, column)

    return _engine.RowWriter(rows, tree, slowly)


def _put(rows: np.ndarray, k: int, value: Any, column: FieldSpec) -> None:
    check_unmasked(column.name, value)
    found = np.asarray(value)
    mismatch = f"{column.name}: expected {column}, found {found.dtype}"
    if found.shape != column.shape:
        raise ValueError(f"{mismatch}{list(found.shape)}")
    whole = found.dtype.kind in "iub" and rows.dtype.kind in "iu"
    if not whole and not np.can_cast(found.dtype, rows.dtype, "same_kind"):
        raise ValueError(f"{mismatch}{list(found.shape)}")
    if whole and found.size:
        limits = np.iinfo(rows.dtype)
        if int(found.min()) < limits.min or int(found.max()) > limits.max:
            raise ValueError(
                f"{column.name}: a {found.dtype} that {rows.dtype} cannot hold"
            )
    rows[k] = found.astype(rows.dtype, copy=False)


def leaves_of(value: Any, tree: Any, path: str = "") -> list[Any]:
    """The leaves of ``value`` in the places that ``tree`` has numbers in."""
    found: dict[int, Any] = {}
    _collect(value, tree, path, found)
    return [found[i] for i in range(len(found))]


def _collect(value: Any, tree: Any, path: str, found: dict[int, Any]) -> None:
    if isinstance(tree, int):
        found[tree] = value
        return
    what = path or "the sample"
    if isinstance(tree, Mapping):
        if not isinstance(value, Mapping) or value.keys() != tree.keys():
            got = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"{what}: expected keys {sorted(tree)}, found {got}")
        for key, inner in tree.items():
            _collect(value[key], inner, f"{path}/{key}" if path else str(key), found)
    elif isinstance(tree, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(tree):
            raise ValueError(
                f"{what}: expected {len(tree)} values, found {_counted(value)}"
            )
        for i, inner in enumerate(tree):
            _collect(value[i], inner, f"{path}/{i}" if path else str(i), found)
    elif tree is None:
        if value is not None:
            raise ValueError(f"{what}: expected None, found {type(value).__name__}")
    else:  # a node that only jax knows
        import jax

        numbers = jax.tree.leaves(tree)
        leaves = jax.tree.leaves(value)
        if len(leaves) != len(numbers):
            raise ValueError(
                f"{what}: expected {len(numbers)} leaves, found {len(leaves)}"
            )
        found.update(zip(numbers, leaves, strict=True))


def _counted(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{len(value)} of them"
    return type(value).__name__


def rebuilt(tree: Any, leaves: Sequence[Any]) -> Any:
    """``tree`` with the leaves in the places of its numbers."""
    if isinstance(tree, int):
        return leaves[tree]
    if isinstance(tree, Mapping):
        return {key: rebuilt(inner, leaves) for key, inner in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(rebuilt(inner, leaves) for inner in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(rebuilt(inner, leaves) for inner in tree)
    if tree is None:
        return None
    import jax

    return jax.tree.map(lambda i: leaves[i], tree)


@dataclass(frozen=True)
class Task:
    """What is called for each row; a description that travels to workers.

    ``inputs`` and ``outputs`` are the columns of the rows that it is given and makes.
    """

    gives_rows: ClassVar[bool] = False
    """Whether the function is given the very rows that it makes."""

    inputs: tuple[FieldSpec, ...] = field(default=(), kw_only=True)
    outputs: tuple[FieldSpec, ...] = field(default=(), kw_only=True)

    def start(self) -> None:
        """Called once in each worker."""

    def make(self, chunk: Chunk) -> list[Any] | None:
        """Makes the rows, noting in ``chunk.row[0]`` which; returns host values."""
        raise NotImplementedError

    def tell(self, error: BaseException, index: int) -> None:
        """Adds to an error what else is known of the sample that it is of."""


@dataclass(frozen=True)
class SampleTask(Task):
    """``fn(index)`` gives a sample; its keys in ``host_fields`` are not arrays."""

    fn: Callable[[int], Any]
    tree: Any
    host_fields: tuple[str, ...] = ()

    def make(self, chunk: Chunk) -> list[Any] | None:
        rows = writer(chunk.made, self.outputs, self.tree)
        if not self.host_fields:
            self._write(rows, chunk)
            return None
        host_values = []
        for k, sample in enumerate(self._samples(chunk.indices.tolist(), chunk.row)):
            arrays, apart = _parted(sample, self.host_fields)
            host_values.append(apart)
            rows.put(k, arrays)
        return host_values

    def _write(self, rows: _engine.RowWriter, chunk: Chunk) -> None:
        rows.put_all(self.fn, chunk.indices, chunk.row)

    def _samples(self, indices: list[int], row: np.ndarray) -> Iterator[Any]:
        for k, index in enumerate(indices):
            row[0] = k
            yield self.fn(index)


@dataclass(frozen=True)
class SamplesTask(SampleTask):
    """``fn(indices)`` gives a list of samples."""

    def _write(self, rows: _engine.RowWriter, chunk: Chunk) -> None:
        for k, sample in enumerate(self._samples(chunk.indices.tolist(), chunk.row)):
            rows.put(k, sample)

    def _samples(self, indices: list[int], row: np.ndarray) -> Iterator[Any]:
        if len(indices) > 1:
            row[0] = -len(indices)
        samples = self.fn(indices)  # type: ignore[arg-type]
        if len(samples) != len(indices):
            raise ValueError(
                f"__getitems__ gave {len(samples)} samples for {len(indices)} indices"
            )
        for k, sample in enumerate(samples):
            row[0] = k
            yield sample


def _parted(sample: Any, keys: tuple[str, ...]) -> tuple[dict[str, Any], Any]:
    if not isinstance(sample, Mapping):
        raise ValueError(f"expected a dict, found {type(sample).__name__}")
    missing = [key for key in keys if key not in sample]
    if missing:
        raise ValueError(f"expected keys {missing}, found {sorted(sample)}")
    arrays = {key: value for key, value in sample.items() if key not in keys}
    return arrays, {key: sample[key] for key in keys}


@dataclass(frozen=True)
class MapTask(Task):
    """``fn(sample)`` gives a sample; ``wants`` names a second argument, or is empty.

    "seed" is a whole number of 64 bits, "key" two words as JAX's raw keys are.
    """

    fn: Callable[..., Any]
    before: Any
    after: Any
    wants: str = ""

    def make(self, chunk: Chunk) -> list[Any] | None:
        numbers = (
            [0] * len(chunk.indices) if chunk.seeds is None else chunk.seeds.tolist()
        )
        rows = writer(chunk.made, self.outputs, self.after)
        for k, seed in enumerate(numbers):
            chunk.row[0] = k
            # With an ellipsis a scalar is an array too.
            sample = rebuilt(self.before, [given[k, ...] for given in chunk.given])
            rows.put(k, self.fn(sample, **drawn(self.wants, seed)))
        return None


def drawn(wants: str, seed: int) -> dict[str, Any]:
    """The argument of that name, if any, for one sample."""
    if wants == "seed":
        return {"seed": seed}
    if wants == "key":
        return {"key": np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)}
    return {}


@dataclass(frozen=True)
class FillTask(Task):
    """``fn(data[i], arrays, seed)`` writes a sample into the arrays of its row.

    They are zero before, unless it is known to write all of them (``clear``). What it
    returns is a host value if it is ``kept``. ``startup()`` runs once in each
    worker.
    """

    gives_rows: ClassVar[bool] = True

    fn: Callable[[Any, Mapping[str, np.ndarray], int | None], Any]
    data: Any
    startup: Callable[[], None] | None = None
    clear: bool = True
    kept: bool = True

    def start(self) -> None:
        if self.startup is not None:
            self.startup()

    def make(self, chunk: Chunk) -> list[Any] | None:
        # All of them first: a large sample leaves nothing of Python in the caches.
        samples = [
            _views(chunk.made, self.outputs, k) for k in range(len(chunk.indices))
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
            if index < 0:  # padding has nothing to be filled with
                host_values.append(None)
                continue
            item = self.data[index]
            try:
                value = self.fn(item, arrays, seed)
            except KeyError as error:
                error.add_note(f"millstream: the arrays to fill are {list(arrays)}")
                raise
            host_values.append(value if self.kept else None)
        return host_values if any(value is not None for value in host_values) else None

    def tell(self, error: BaseException, index: int) -> None:
        tell_item = getattr(self.fn, "tell_item", None)
        if tell_item is not None:
            tell_item(error, self.data[index])


def _views(
    made: Rows, columns: tuple[FieldSpec, ...], k: int
) -> Mapping[str, np.ndarray]:
    """Row k by names. With an ellipsis a scalar is a view too."""
    pairs = zip(columns, made, strict=True)
    return MappingProxyType({column.name: rows[k, ...] for column, rows in pairs})


@dataclass(frozen=True)
class ItemTask(Task):
    """``fn(i)``, or ``fn[i]`` where it is no function: values that are not arrays."""

    fn: Any

    def make(self, chunk: Chunk) -> list[Any] | None:
        one = self.fn if callable(self.fn) else self.fn.__getitem__
        values = []
        for k, index in enumerate(chunk.indices.tolist()):
            chunk.row[0] = k
            values.append(one(index))
        return values


def run(
    task: Task,
    indices: np.ndarray,
    seeds: np.ndarray | None,
    given: Rows,
    made: Rows,
    row: np.ndarray,
) -> list[Any] | None:
    """Makes the rows of one part; what is thrown is told the sample that it is of."""
    try:
        return task.make(Chunk(indices, seeds, given, made, row))
    except BaseException as error:
        sample = _named(indices, row)
        error.add_note(f"millstream: this was {sample}")
        other = stand_in(error, f"for {sample}")
        if other is None:
            raise
        raise other from error


def packed(
    task: Task, indices: np.ndarray, host_values: list[Any] | None, row: np.ndarray
) -> bytes:
    """The host values as bytes; errors name the sample."""
    if host_values is None:
        return b""
    try:
        return pickle.dumps(host_values, protocol=5)
    except Exception:
        for k, value in enumerate(host_values):
            row[0] = k
            try:
                pickle.dumps(value, protocol=5)
            except Exception as error:
                task.tell(error, int(indices[k]))
                error.add_note(f"millstream: this was {_named(indices, row)}")
                raise error from None
        raise


def _named(indices: np.ndarray, row: np.ndarray) -> str:
    at = int(row[0])
    if at >= 0:
        return f"sample {int(indices[at])}"
    listed = ", ".join(map(str, indices[:-at][:_LISTED].tolist()))
    more = ", ..." if -at > _LISTED else ""
    return f"one of samples [{listed}{more}]"


def whereabouts(thread: int) -> str:
    """Where that thread is in Python, for people to read."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame))
