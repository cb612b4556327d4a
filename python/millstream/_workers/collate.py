"""The task that makes whole batches with a function of the user.

Worker processes import this module, so it must not import jax.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from millstream._workers.rows import Rows, as_array, is_tensor
from millstream._workers.tasks import Chunk, Task

Path = tuple[Any, ...]
"""The keys and positions that lead to an array of a batch."""

NO_ARRAYS = "_"
"""The name of the only field if no array of a batch has one row per sample."""

_NARROW = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}


@dataclass(frozen=True)
class Field:
    """Stands in a batch for the array that is field ``number`` of the engine."""

    number: int


@dataclass(frozen=True)
class Samples:
    """Reads samples of a data set, several at once if it has ``__getitems__``."""

    dataset: Any

    def __call__(self, indices: list[int], row: np.ndarray) -> list[Any]:
        several = getattr(self.dataset, "__getitems__", None)
        if not callable(several):
            samples = []
            for k, index in enumerate(indices):
                row[0] = k
                samples.append(self.dataset[index])
            return samples
        row[0] = -len(indices) if len(indices) > 1 else 0
        samples = list(several(indices))
        if len(samples) != len(indices):
            raise ValueError(
                f"__getitems__ returned {len(samples)} samples for {len(indices)} "
                "indices. It must return one sample for each index."
            )
        return samples


@dataclass(frozen=True)
class CollateTask(Task):
    """``collate(samples)`` returns a batch, which may be any object.

    Arrays at the paths ``paths`` are written into the rows of the engine's fields if
    they have the dtype and the shape of the field. If all of a batch is written and it
    has the structure ``skeleton``, there is no host value. Otherwise the host value of
    the first row is a tuple of the batch alone, with a ``Field`` in place of each array
    that was written.
    """

    whole: ClassVar[bool] = True

    read: Samples
    collate: Callable[[list[Any]], Any]
    paths: Mapping[Path, int]
    skeleton: Any
    narrow: bool

    def make(self, chunk: Chunk) -> list[Any] | None:
        indices, rows = chunk.indices.tolist(), chunk.outputs
        samples = self.read(indices, chunk.row)
        chunk.row[0] = -len(indices) if len(indices) > 1 else 0
        batch = self.collate(samples)
        is_written = bool(self.paths)

        def put(path: Path, array: np.ndarray) -> Any:
            nonlocal is_written
            number = self._written(path, array, rows)
            is_written &= number is not None
            return array if number is None else Field(number)

        def keep(value: Any) -> Any:
            nonlocal is_written
            is_written = False
            return value

        skeleton = mapped(batch, put, keep, self.narrow)
        if not self.paths:
            rows[0][...] = True
        if is_written and skeleton == self.skeleton:
            return None
        return [(skeleton,), *[None] * (len(indices) - 1)]

    def _written(self, path: Path, array: np.ndarray, rows: Rows) -> int | None:
        """Writes an array to its field. Returns the number of the field, or None."""
        number = self.paths.get(path)
        if number is None:
            return None
        field = rows[number]
        if array.dtype != field.dtype or array.shape != field.shape:
            return None
        field[...] = array
        return number


def mapped(
    value: Any,
    put: Callable[[Path, np.ndarray], Any],
    keep: Callable[[Any], Any],
    narrow: bool,
    path: Path = (),
) -> Any:
    """Returns a batch with ``put(path, array)`` in place of each array.

    Tensors count as arrays. The function looks into dicts, lists and tuples, and
    replaces all other objects by ``keep(object)``. With ``narrow``, arrays get the
    dtypes that JAX uses without x64.
    """
    array = _array_of(value)
    if array is not None:
        return put(path, _narrowed(array, path) if narrow else array)
    kind = type(value)
    if isinstance(value, Mapping):
        entries = {
            key: mapped(inner, put, keep, narrow, (*path, key))
            for key, inner in value.items()
        }
        return rebuilt(value, entries)
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(kind, "_make")):
        items = [
            mapped(inner, put, keep, narrow, (*path, i))
            for i, inner in enumerate(value)
        ]
        return kind._make(items) if hasattr(kind, "_make") else kind(items)
    return keep(value)


def rebuilt(value: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    """Returns a mapping of the type of ``value`` with other entries."""
    if type(value) is dict:
        return entries
    try:
        other: Any = copy.copy(value)
        other.update(entries)
    except Exception:  # for example a mapping that cannot be changed
        return entries
    return other


def _array_of(value: Any) -> np.ndarray | None:
    """Returns an array or a tensor of numbers as a NumPy array, and None otherwise."""
    if not isinstance(value, np.ndarray):
        module = type(value).__module__.partition(".")[0]
        is_jax = module in ("jax", "jaxlib") and hasattr(value, "__array__")
        if not is_jax and not is_tensor(value):
            return None
        value = as_array(value)
    return None if value.dtype.kind in "OUSMm" else value


def _narrowed(array: np.ndarray, path: Path) -> np.ndarray:
    """Returns an array with the dtype that JAX uses without x64.

    Raises ``ValueError`` if an integer does not fit.
    """
    name = _NARROW.get(array.dtype.name)
    if name is None:
        return array
    if array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(name)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            where = f"{'/'.join(map(str, path))!r} of the batch" if path else "a batch"
            raise ValueError(
                f"{where} that collate_fn returned has a value of dtype {array.dtype} "
                f"that {name} cannot hold. Turn on jax_enable_x64, or return smaller "
                "numbers."
            )
    with np.errstate(over="ignore"):
        return array.astype(name)
