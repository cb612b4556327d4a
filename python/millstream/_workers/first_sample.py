"""Finds the fields of a function's samples from its first sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from millstream._core.arguments import check_unmasked
from millstream._core.description import Tree
from millstream._core.errors import WorkerError, WorkerTimeout
from millstream._sources.ordered import name_of, names_of
from millstream._workers.rows import FieldSpec, as_array

# How many samples may fail before the first that shows the fields.
_MAX_TRIED = 10


def first_sample(
    caller: str, make: Callable[[int], Any], count: int, stacklevel: int
) -> Any:
    """Returns ``make(i)`` of the first of ``count`` samples that can be made.

    It tries the first samples, because ``on_error="skip"`` may skip those that fail. If
    all of them fail, it raises the error of the first.

    It calls ``make`` twice and warns if the two results differ. It also warns about a
    list of numbers in the sample, because JAX treats each number as a field.
    """
    first_error: Exception | None = None
    for index in range(min(count, _MAX_TRIED)):
        try:
            sample, again = make(index), make(index)
            break
        except (WorkerError, WorkerTimeout):  # the loader never skips these
            raise
        except Exception as error:
            if first_error is None:
                first_error = error
    else:
        assert first_error is not None  # there is at least one sample
        raise first_error
    difference = _first_difference(sample, again)
    if difference is not None:
        warnings.warn(
            f"{caller}: two calls for sample {index} returned different values"
            f"{difference}. A sample must depend only on its index, or a resumed run "
            "gets other batches. For random numbers, give the function of "
            "DiskSampleSource or PythonMapTransform an argument rng (a NumPy "
            "Generator) or seed.",
            UserWarning,
            stacklevel=stacklevel,
        )
    warn_of_numbers(caller, sample, stacklevel + 1)
    return sample


def warn_of_numbers(caller: str, sample: Any, stacklevel: int) -> None:
    """Warns of a list of numbers in a sample, because JAX makes a field of each."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(sample, _is_numbers)[0]:
        if _is_numbers(leaf):
            where = f"'{name_of(path)}' of a sample" if path else "a sample"
            warnings.warn(
                f"{caller}: {where} is a list of {len(leaf)} numbers, which becomes "
                f"{len(leaf)} fields of one number each. To get one field, return "
                "np.asarray(...) of the list, or pass dataset.with_format('numpy') of "
                "a Hugging Face data set.",
                UserWarning,
                stacklevel=stacklevel,
            )
            break


def _first_difference(sample: Any, again: Any) -> str | None:
    """Returns " of 'x'" if two samples differ in the field x, None if they do not."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(sample)
    others, other_structure = jax.tree.flatten(again)
    if bool(structure != other_structure):  # type: ignore[operator]
        return ""
    for (path, leaf), other in zip(leaves, others, strict=True):
        a, b = as_array(leaf), as_array(other)
        if a.dtype.kind == b.dtype.kind == "O":
            continue
        if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
            return f" of '{name_of(path)}'" if path else ""
    return None


def _is_numbers(node: Any) -> bool:
    return (
        type(node) is list
        and len(node) > 1
        and all(isinstance(value, int | float | complex | np.number) for value in node)
    )


def columns_of(
    spec: Tree, caller: str, host_fields: tuple[str, ...] = ()
) -> tuple[tuple[FieldSpec, ...], Tree]:
    """Returns the fields of a sample and the pytree of their positions.

    The dtypes are those that JAX uses, so that workers can write rows in place. A
    sample with host fields may have no arrays.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(spec)
    if not leaves and not host_fields:
        raise ValueError(f"{caller}: a sample must have at least one array, found none")
    columns = []
    for name, (_, leaf) in zip(names_of(caller, spec), leaves, strict=True):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            check_unmasked(name, leaf)
            leaf = as_array(leaf)
        if leaf.dtype.kind in "OUSMm":
            raise TypeError(
                f"{caller}: {name!r} has the dtype {leaf.dtype}, which JAX arrays "
                "cannot hold. Return a dict and list the key in host_fields."
            )
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        columns.append(FieldSpec(name, dtype.name, tuple(leaf.shape)))
    return tuple(columns), jax.tree.unflatten(structure, range(len(columns)))


def specs(columns: tuple[FieldSpec, ...]) -> list[tuple[str, str, list[int]]]:
    """Returns (name, dtype, shape) of each field."""
    return [column.spec for column in columns]


def host_fields_of(sample: Any) -> tuple[str, ...]:
    """Returns the keys of a dict whose values cannot be JAX arrays."""
    if not isinstance(sample, Mapping):
        return ()

    def is_host_value(value: Any) -> bool:
        return any(as_array(x).dtype.kind in "OUSMm" for x in jax.tree.leaves(value))

    return tuple(key for key, value in sample.items() if is_host_value(value))


def without_keys(sample: Any, keys: tuple[str, ...]) -> Any:
    """Returns a dict without some of its keys."""
    if not keys:
        return sample
    if not isinstance(sample, Mapping):
        raise TypeError(
            f"host_fields={keys} needs samples that are dicts, found "
            f"{type(sample).__name__}"
        )
    return {key: value for key, value in sample.items() if key not in keys}
