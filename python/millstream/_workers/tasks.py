"""Tasks, which call a user's function to make rows of a batch.

Worker processes import this module, so it must not import jax.
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

# How many samples an error names if any of them may have caused it.
_MAX_NAMED = 8

Rows = list[np.ndarray]
"""One array per field, with one row per sample of a chunk."""


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


@dataclass(frozen=True)
class FieldSpec:
    """The name, the name of the dtype, and the shape of a field of a sample."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    @property
    def spec(self) -> tuple[str, str, list[int]]:
        """The field in the form that the engine takes."""
        return self.name, self.dtype, list(self.shape)


def writer(rows: Rows, columns: tuple[FieldSpec, ...], tree: Any) -> _engine.RowWriter:
    """Returns a writer that writes samples with the structure ``tree`` to ``rows``.

    It raises ``ValueError`` if a value has another shape or does not fit the dtype.
    """

    def put_any(k: int, sample: Any) -> None:
        leaves = leaves_of(sample, tree)
        for field_rows, column, leaf in zip(rows, columns, leaves, strict=True):
            _put(field_rows, k, leaf, column)

    return _engine.RowWriter(rows, tree, put_any)


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
                f"{column.name}: found a value of dtype {found.dtype} that "
                f"{rows.dtype} cannot hold"
            )
    rows[k] = found.astype(rows.dtype, copy=False)


def leaves_of(value: Any, tree: Any, path: str = "") -> list[Any]:
    """Returns the leaves of ``value``, which must have the structure of ``tree``.

    The leaves of ``tree`` are positions in the result. Raises ``ValueError`` with
    the name of the first node that has another structure.
    """
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
                f"{what}: expected {len(tree)} values, found {_length_or_type(value)}"
            )
        for i, inner in enumerate(tree):
            _collect(value[i], inner, f"{path}/{i}" if path else str(i), found)
    elif tree is None:
        if value is not None:
            raise ValueError(f"{what}: expected None, found {type(value).__name__}")
    else:  # a pytree node that only jax can flatten
        import jax

        numbers = jax.tree.leaves(tree)
        leaves = jax.tree.leaves(value)
        if len(leaves) != len(numbers):
            raise ValueError(
                f"{what}: expected {len(numbers)} leaves, found {len(leaves)}"
            )
        found.update(zip(numbers, leaves, strict=True))


def _length_or_type(value: Any) -> str:
    if isinstance(value, list | tuple):
        return str(len(value))
    return type(value).__name__


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """Returns ``tree`` with each position replaced by the leaf at this position."""
    if isinstance(tree, int):
        return leaves[tree]
    if isinstance(tree, Mapping):
        return {key: unflatten(inner, leaves) for key, inner in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(unflatten(inner, leaves) for inner in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(unflatten(inner, leaves) for inner in tree)
    if tree is None:
        return None
    import jax

    return jax.tree.map(lambda i: leaves[i], tree)


@dataclass(frozen=True)
class Task:
    """A user's function and how to call it. Workers receive it as a pickle.

    ``inputs`` are the fields that it reads, ``outputs`` the fields that it writes.
    """

    exposes_outputs: ClassVar[bool] = False
    """Whether the function receives the output arrays and may keep them."""

    inputs: tuple[FieldSpec, ...] = field(default=(), kw_only=True)
    outputs: tuple[FieldSpec, ...] = field(default=(), kw_only=True)

    def start(self) -> None:
        """Prepares a worker. Each worker calls it once."""

    def make(self, chunk: Chunk) -> list[Any] | None:
        """Makes the rows of a chunk. Returns one host value per row, or None."""
        raise NotImplementedError

    def add_notes(self, error: BaseException, index: int) -> None:
        """Adds notes about sample ``index`` to an error."""


@dataclass(frozen=True)
class SampleTask(Task):
    """``fn(index)`` returns a sample. Its keys ``host_fields`` hold host values."""

    fn: Callable[[int], Any]
    tree: Any
    host_fields: tuple[str, ...] = ()

    def make(self, chunk: Chunk) -> list[Any] | None:
        rows = writer(chunk.outputs, self.outputs, self.tree)
        if not self.host_fields:
            self._write(rows, chunk)
            return None
        host_values = []
        for k, sample in enumerate(self._samples(chunk.indices.tolist(), chunk.row)):
            arrays, values = _split_host_fields(sample, self.host_fields)
            host_values.append(values)
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
    """``fn(indices)`` returns a list of samples."""

    def _write(self, rows: _engine.RowWriter, chunk: Chunk) -> None:
        for k, sample in enumerate(self._samples(chunk.indices.tolist(), chunk.row)):
            rows.put(k, sample)

    def _samples(self, indices: list[int], row: np.ndarray) -> Iterator[Any]:
        if len(indices) > 1:
            row[0] = -len(indices)
        samples = self.fn(indices)  # type: ignore[arg-type]
        if len(samples) != len(indices):
            raise ValueError(
                f"__getitems__ returned {len(samples)} samples for {len(indices)} "
                "indices"
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

    ``wants`` is the name of a second argument, or empty: "seed" is a 64-bit integer,
    "key" is a uint32[2] like JAX's raw keys. ``before`` and ``after`` are pytrees of
    the positions of the input and output fields.
    """

    fn: Callable[..., Any]
    before: Any
    after: Any
    wants: str = ""

    def make(self, chunk: Chunk) -> list[Any] | None:
        seeds = (
            [0] * len(chunk.indices) if chunk.seeds is None else chunk.seeds.tolist()
        )
        rows = writer(chunk.outputs, self.outputs, self.after)
        for k, seed in enumerate(seeds):
            chunk.row[0] = k
            # The ellipsis makes a scalar an array instead of a NumPy scalar.
            sample = unflatten(self.before, [array[k, ...] for array in chunk.inputs])
            rows.put(k, self.fn(sample, **drawn(self.wants, seed)))
        return None


def drawn(wants: str, seed: int) -> dict[str, Any]:
    """Returns the keyword argument ``wants``, if any, for one sample."""
    if wants == "seed":
        return {"seed": seed}
    if wants == "key":
        return {"key": np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)}
    return {}


@dataclass(frozen=True)
class FillTask(Task):
    """``fn(data[i], arrays, seed)`` writes a sample into the arrays of its row.

    ``clear`` sets the arrays to zero before each call. ``returns_value`` makes the
    return value the host value of the row. Each worker calls ``startup()`` once.
    """

    exposes_outputs: ClassVar[bool] = True

    fn: Callable[[Any, Mapping[str, np.ndarray], int | None], Any]
    data: Any
    startup: Callable[[], None] | None = None
    clear: bool = True
    returns_value: bool = True

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
                value = self.fn(item, arrays, seed)
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
    """``fn(i)``, or ``fn[i]`` if ``fn`` is not callable, returns a host value."""

    fn: Any

    def make(self, chunk: Chunk) -> list[Any] | None:
        item = self.fn if callable(self.fn) else self.fn.__getitem__
        values = []
        for k, index in enumerate(chunk.indices.tolist()):
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
) -> list[Any] | None:
    """Makes the rows of one chunk. Adds the sample to errors as a note."""
    try:
        return task.make(Chunk(indices, seeds, inputs, outputs, row))
    except BaseException as error:
        sample = _sample_name(indices, row)
        error.add_note(f"millstream: this error was raised for {sample}")
        only = int(indices[row[0]]) if row[0] >= 0 else None
        other = stand_in(error, f"for {sample}", only)
        if other is None:
            raise
        raise other from error


def pickled_host_values(
    task: Task, indices: np.ndarray, host_values: list[Any] | None, row: np.ndarray
) -> bytes:
    """Pickles the host values of a chunk. Adds the sample to errors as a note."""
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
                task.add_notes(error, int(indices[k]))
                error.add_note(
                    "millstream: this error was raised for "
                    f"{_sample_name(indices, row)}"
                )
                raise error from None
        raise


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
