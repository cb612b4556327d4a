"""Writes samples into the rows of a batch, and reads them from there.

Worker processes import this module, so it must not import jax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream import _engine
from millstream._core.arguments import check_unmasked

Rows = list[np.ndarray]
"""One array per field, with one row per sample of a chunk."""


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
        put_sample(rows, k, sample, columns, tree)

    return _engine.RowWriter(rows, tree, put_any)


def put_sample(
    rows: Rows, k: int, sample: Any, columns: tuple[FieldSpec, ...], tree: Any
) -> None:
    """Writes any sample with the structure ``tree`` to row k."""
    leaves = leaves_of(sample, tree)
    for field_rows, column, leaf in zip(rows, columns, leaves, strict=True):
        _put(field_rows, k, leaf, column)


def _put(rows: np.ndarray, k: int, value: Any, column: FieldSpec) -> None:
    check_unmasked(column.name, value)
    found = np.asarray(value)
    mismatch = f"{column.name}: expected {column}, found {found.dtype}"
    if found.shape != column.shape:
        raise ValueError(
            f"{mismatch}{list(found.shape)}. All samples must have the same shape. Pad "
            "or crop them in the function or the data set that makes them, or list the "
            "field in host_fields and pad it in a PythonMapTransform."
        )
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
            got, advice = type(value).__name__, ""
            if isinstance(value, Mapping):
                got = str(sorted(value))
                if not path and value.keys() > tree.keys():
                    advice = ". List the keys of host fields in host_fields=."
            raise ValueError(
                f"{what}: expected keys {sorted(tree)}, found {got}{advice}"
            )
        for key, inner in tree.items():
            _collect(value[key], inner, f"{path}/{key}" if path else str(key), found)
    elif isinstance(tree, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(tree):
            raise ValueError(
                f"{what}: expected {len(tree)} values, found {_length_or_type(value)}. "
                "All samples must have the same structure. If the values are numbers, "
                "return np.asarray(values), padded or cropped to one length, or list "
                "the field in host_fields and pad it in a PythonMapTransform."
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
