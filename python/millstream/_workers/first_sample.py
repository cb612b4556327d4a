"""What the first sample of a function says about all samples."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from millstream._core.arguments import check_unmasked
from millstream._core.description import Tree
from millstream._sources.ordered import name_of, names_of
from millstream._workers.tasks import Column


def first_sample(who: str, make: Callable[[], Any], stacklevel: int) -> Any:
    """What ``make`` returns for sample 0.

    It is called twice and warns where the samples differ, or where a list of numbers
    would become as many fields.
    """
    sample, again = make(), make()
    differs = _first_difference(sample, again)
    if differs is not None:
        warnings.warn(
            f"{who}: two calls for sample 0 gave different values{differs}. A sample "
            "has to depend on its index alone, or the same state gives other batches "
            "when it is resumed. Draw random numbers from the seed that "
            "PythonMapTransform gives to a function fn(sample, seed)",
            UserWarning,
            stacklevel=stacklevel,
        )
    for path, leaf in jax.tree_util.tree_flatten_with_path(sample, _is_numbers)[0]:
        if _is_numbers(leaf):
            where = f"'{name_of(path)}' of a sample" if path else "a sample"
            warnings.warn(
                f"{who}: {where} is a list of {len(leaf)} numbers, which becomes "
                f"{len(leaf)} fields of one number each. Return np.asarray(...) of the "
                "list for one field",
                UserWarning,
                stacklevel=stacklevel,
            )
            break
    return sample


def _first_difference(sample: Any, again: Any) -> str | None:
    """Where two samples differ, as " of 'x'"; None where they do not."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(sample)
    others, other_structure = jax.tree.flatten(again)
    if bool(structure != other_structure):  # type: ignore[operator]
        return ""
    for (path, leaf), other in zip(leaves, others, strict=True):
        a, b = np.asarray(leaf), np.asarray(other)
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


def columns_of(spec: Tree, who: str) -> tuple[tuple[Column, ...], Tree]:
    """The columns of a sample and the tree of their positions.

    Dtypes are those that JAX will have, so that workers write them in place.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(spec)
    if not leaves:
        raise ValueError(f"{who}: a sample needs at least one array; this has none")
    columns = []
    for name, (_, leaf) in zip(names_of(who, spec), leaves, strict=True):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            check_unmasked(name, leaf)
            leaf = np.asarray(leaf)
        if leaf.dtype.kind in "OUSMm":
            raise TypeError(
                f"{who}: {name!r} is {leaf.dtype}, which is no array for JAX; values "
                "that are not arrays stand under keys of a dict (host_fields)"
            )
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        columns.append(Column(name, dtype.name, tuple(leaf.shape)))
    return tuple(columns), jax.tree.unflatten(structure, range(len(columns)))


def specs(columns: tuple[Column, ...]) -> list[tuple[str, str, list[int]]]:
    return [column.spec for column in columns]


def not_arrays(sample: Any) -> tuple[str, ...]:
    """The keys of a dict whose values JAX has no array for."""
    if not isinstance(sample, Mapping):
        return ()

    def foreign(value: Any) -> bool:
        return any(np.asarray(x).dtype.kind in "OUSMm" for x in jax.tree.leaves(value))

    return tuple(key for key, value in sample.items() if foreign(value))


def without(sample: Any, keys: tuple[str, ...]) -> Any:
    if not keys:
        return sample
    if not isinstance(sample, Mapping):
        raise TypeError(
            f"host_fields={keys} are keys of a dict, but a sample is a "
            f"{type(sample).__name__}"
        )
    return {key: value for key, value in sample.items() if key not in keys}
