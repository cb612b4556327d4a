"""Converts a data set of samples to arrays on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from millstream._core.arguments import check_unmasked, overflow
from millstream._core.devices import device_named
from millstream._core.public import public

if TYPE_CHECKING:
    import jax


class Dataset(Protocol):
    """An object with a length that returns samples by index."""

    def __len__(self) -> int:
        """Returns the number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """Returns sample ``index``, a pytree of array-likes."""


@public
def dataset_to_jax(
    dataset: Dataset, *, storage_device: jax.Device | str | None = "cpu"
) -> Any:
    """Returns all samples of ``dataset`` as one pytree of JAX arrays.

    The leading dimension of each leaf counts the samples. If the data set has
    ``as_array_dict()``, its arrays are used. Otherwise the samples are read one by one.
    The arrays are copies that are not committed to their device.

    Args:
      dataset: An object with ``__len__`` and ``__getitem__``.
      storage_device: A device, a name such as "cpu" or "gpu:1", or None for JAX's
        default device.

    Raises:
      ValueError: There are no samples, their structures, shapes or dtypes differ, a
        value is not numeric, or an integer does not fit the 32-bit type that JAX uses
        without x64.
    """
    import jax
    import jax.numpy as jnp

    device = device_named(storage_device)
    as_array_dict = getattr(dataset, "as_array_dict", None)
    stacked = _stack_samples(dataset) if as_array_dict is None else as_array_dict()
    paths_and_leaves, structure = jax.tree_util.tree_flatten_with_path(stacked)
    leaves = [_checked_leaf(path, leaf) for path, leaf in paths_and_leaves]
    if not leaves:
        raise ValueError(f"the samples of {type(dataset).__name__} have no fields")
    for (path, _), leaf in zip(paths_and_leaves, leaves, strict=True):
        if leaf.ndim == 0:
            raise ValueError(
                f"field {_field(path)} is a scalar. Pass an array with one row per "
                "sample."
            )
        if len(leaf) == 0:
            raise ValueError(f"{type(dataset).__name__} has no samples")
        if len(leaf) != len(leaves[0]):
            raise ValueError(
                f"field {_field(path)} has {len(leaf)} samples, "
                f"field {_field(paths_and_leaves[0][0])} has {len(leaves[0])}"
            )
    with jax.default_device(device):
        arrays = [jnp.array(leaf) for leaf in leaves]
    return jax.tree_util.tree_unflatten(structure, arrays)


def _stack_samples(dataset: Dataset) -> Any:
    import jax

    count = len(dataset)
    if count == 0:
        raise ValueError(f"{type(dataset).__name__} has no samples")
    first, tree = jax.tree_util.tree_flatten_with_path(dataset[0])
    structure: Any = tree
    columns = [
        np.empty((count, *value.shape), value.dtype)
        for value in (_checked_leaf(path, leaf) for path, leaf in first)
    ]
    for index in range(count):
        sample, found = jax.tree_util.tree_flatten_with_path(dataset[index])
        if found != structure:
            raise ValueError(
                f"sample {index} has the structure {found}, sample 0 has {structure}"
            )
        for column, (path, leaf) in zip(columns, sample, strict=True):
            value = _checked_leaf(path, leaf)
            if (value.shape, value.dtype) != (column.shape[1:], column.dtype):
                raise ValueError(
                    f"field {_field(path)}: sample {index} is "
                    f"{value.dtype}{list(value.shape)}, "
                    f"sample 0 is {column.dtype}{list(column.shape[1:])}"
                )
            column[index] = value
    return jax.tree_util.tree_unflatten(structure, columns)


def _checked_leaf(path: Sequence[Any], leaf: Any) -> NDArray[Any]:
    import jax
    import jax.numpy as jnp

    check_unmasked(_field(path), leaf)
    value = np.asarray(leaf)
    if value.dtype.kind in "OUSVMm" and not jnp.issubdtype(value.dtype, np.number):
        raise ValueError(
            f"field {_field(path)}: expected numbers or booleans, found {value.dtype} "
            f"({type(leaf).__name__})"
        )
    stored = jax.dtypes.canonicalize_dtype(value.dtype)
    narrows = value.dtype.kind in "iu" and stored != value.dtype
    if narrows and (problem := overflow(value, stored)):
        raise ValueError(
            f"field {_field(path)}: {problem}, which JAX uses for {value.dtype} unless "
            "jax_enable_x64 is on. Turn it on or use smaller values."
        )
    return value


def _field(path: Sequence[Any]) -> str:
    import jax

    return jax.tree_util.keystr(tuple(path)) or "(the sample itself)"
