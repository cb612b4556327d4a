"""Writes samples into the rows of a batch, and reads them from there.

Worker processes import this module, so it must not import jax.
"""

from __future__ import annotations

import sys
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
    found = as_array(value)
    if found.dtype.kind in "OUSMm":
        raise ValueError(_not_numbers(value, found, column))
    if found.shape != column.shape:
        raise ValueError(
            f"{_mismatch(found, column)}. All samples must have the same shape. Pad "
            "or crop them in the function or the data set that makes them, or list the "
            "field in host_fields and pad it in a PythonMapTransform."
        )
    whole = found.dtype.kind in "iub" and rows.dtype.kind in "iu"
    if not whole and not np.can_cast(found.dtype, rows.dtype, "same_kind"):
        raise ValueError(
            f"{_mismatch(found, column)}. The first sample or sample_spec determines "
            "the dtype of a field. Convert the values in the function or the data set "
            f"that makes them: these to {rows.dtype}, or those of all samples to "
            f"{_common(found.dtype, rows.dtype)}."
        )
    if whole and found.size:
        limits = np.iinfo(rows.dtype)
        if int(found.min()) < limits.min or int(found.max()) > limits.max:
            raise ValueError(
                f"{column.name}: found a value of dtype {found.dtype} that "
                f"{rows.dtype} cannot hold. {_larger(rows.dtype)}"
            )
    rows[k] = found.astype(rows.dtype, copy=False)


def as_array(value: Any) -> np.ndarray:
    """Returns ``np.asarray(value)``, and also takes any tensor of PyTorch."""
    if not is_tensor(value):
        return np.asarray(value)
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    torch = sys.modules["torch"]
    if tensor.dtype != torch.bfloat16:
        return np.asarray(tensor)
    import ml_dtypes

    bits: np.ndarray = tensor.contiguous().view(torch.int16).numpy()
    return bits.view(ml_dtypes.bfloat16)


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor of PyTorch, which may not be imported."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def _mismatch(found: np.ndarray, column: FieldSpec) -> str:
    return f"{column.name}: expected {column}, found {found.dtype}{list(found.shape)}"


def _not_numbers(value: Any, found: np.ndarray, column: FieldSpec) -> str:
    """Returns the error message for a value that is not an array of numbers."""
    if value is None:
        return (
            f"{column.name}: expected {column}, found None. Filter such samples out, "
            "or replace None by a number, for example -1."
        )
    if isinstance(value, int):  # too large for NumPy's integers
        larger = _larger(np.dtype(column.dtype))
        return f"{column.name}: {column.dtype} cannot hold {value}. {larger}"
    kind = f" ({type(value).__name__})" if found.dtype.kind == "O" else ""
    return (
        f"{_mismatch(found, column)}{kind}. Return numbers of the dtype "
        f"{column.dtype} in all samples. To keep other objects, return a dict and list "
        "their keys in host_fields."
    )


def _common(found: np.dtype[Any], expected: np.dtype[Any]) -> str:
    """Returns the name of a dtype that holds the values of both."""
    if found.kind == "c" or expected.kind == "b":
        return found.name
    return "float32"


def _larger(dtype: np.dtype[Any]) -> str:
    if dtype.itemsize < 4:
        return "Use a larger dtype in all samples, such as int32, or smaller values."
    return (
        "Use smaller values. JAX has integers of 64 bits if jax_enable_x64 is on and "
        "all samples use them."
    )


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
            got, advice = type(value).__name__, "Return the same keys in all samples."
            if isinstance(value, Mapping):
                got = str(sorted(value, key=str))
                if not path and value.keys() > tree.keys():
                    advice += " List the keys of host fields in host_fields=."
            raise ValueError(
                f"{what}: expected keys {sorted(tree, key=str)}, found {got}. {advice}"
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
            raise ValueError(
                f"{what}: expected None, as in the first sample, found "
                f"{type(value).__name__}. Replace None by a number, for example -1, in "
                "all samples."
            )
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
