"""Reads data sets of PyTorch and torchvision that hold arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np

from millstream._sources.arrays import ArraySampleSource
from millstream._sources.combine import Subset
from millstream._sources.functions import DatasetSource
from millstream._sources.ordered import OrderedSource
from millstream._sources.recognise import defined_by, full_name, is_a, kind_of

_DATASET = "torch.utils.data.dataset.Dataset"
_SUBSET = "torch.utils.data.dataset.Subset"


class _NoArrays(Exception):
    """The samples must be made by the data set. The text says why."""


def torch_source(
    x: Any, ordering: Any, options: dict[str, Any]
) -> OrderedSource | None:
    """Returns the source of a data set of PyTorch, or None for another object.

    ``options`` are arguments of ``DatasetSource``.
    """
    if not is_a(x, _DATASET):
        return None
    kind = _kind(x)
    try:
        source = _as_arrays(x, ordering)
        _compare(source, x)
    except _NoArrays as reason:
        why = f" because {reason}" if str(reason) else ""
        in_workers = DatasetSource(x, ordering=ordering, **options)
        return in_workers.with_origin(f"{kind}, in workers{why}")
    return source.with_origin(f"{kind}, as arrays")


def _kind(x: Any) -> str:
    if defined_by(x, "__getitem__") == _SUBSET:
        return f"{kind_of(x)} of {_kind(x.dataset)}"
    return kind_of(x)


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor of PyTorch."""
    return is_a(value, "torch.Tensor")


def as_array(value: Any) -> np.ndarray:
    """Returns an array or a tensor as an array, without a copy if possible."""
    if not is_tensor(value):
        return np.asarray(value)
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) != "torch.bfloat16":
        return np.asarray(tensor)
    bits = tensor.view(sys.modules["torch"].int16)
    return np.asarray(bits).view(ml_dtypes.bfloat16)


def _as_arrays(x: Any, ordering: Any) -> OrderedSource:
    """Returns a source of the arrays of a data set. Raises ``_NoArrays``."""
    getter = defined_by(x, "__getitem__")
    if getter == _SUBSET:
        _check_own(x, _SUBSET)
        return Subset(_as_arrays(x.dataset, "sequential"), _indices(x), ordering)
    arrays_of = _ARRAYS.get(getter)
    if arrays_of is None:
        base = next((c for c in type(x).__mro__ if full_name(c) in _ARRAYS), None)
        if base is None:
            raise _NoArrays
        raise _NoArrays(f"{getter.rpartition('.')[2]} overrides __getitem__")
    _check_own(x, getter)
    return ArraySampleSource(arrays_of(x), ordering)


def _check_own(x: Any, getter: str) -> None:
    """Raises ``_NoArrays`` if a subclass changes how samples are read."""
    for method in ("__getitems__", "__len__"):
        owner = defined_by(x, method)
        if owner and owner not in (getter, _MNIST):
            raise _NoArrays(f"{owner.rpartition('.')[2]} overrides {method}")


def _indices(x: Any) -> Any:
    if len(x) == 0:
        raise ValueError("as_source: the Subset has no samples")
    if isinstance(x.indices, range):
        return x.indices
    indices = np.asarray(x.indices)
    if indices.dtype == np.bool_:  # these are no indices of samples
        raise _NoArrays("its indices are booleans")
    return indices


def _tensors(x: Any) -> Any:
    for i, tensor in enumerate(x.tensors):
        if type(tensor).__name__ not in ("Tensor", "Parameter"):
            raise _NoArrays(f"tensor {i} is a {type(tensor).__name__}")
        if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
            raise _NoArrays(f"tensor {i} has the layout {tensor.layout}")
        if len(tensor) != len(x):
            raise ValueError(
                f"TensorDataset: tensor 0 has {len(x)} rows, tensor {i} has "
                f"{len(tensor)}. All tensors must have the same number of rows."
            )
    return tuple(as_array(tensor) for tensor in x.tensors)


def _images(x: Any) -> Any:
    _check_no_transform(x)
    return as_array(x.data), as_array(x.targets)[: len(x)]


def _qmnist(x: Any) -> Any:
    _check_no_transform(x)
    targets = as_array(x.targets)[: len(x)]
    return as_array(x.data), targets[:, 0] if x.compat else targets


def _check_no_transform(x: Any) -> None:
    for name in ("transform", "target_transform"):
        if getattr(x, name) is not None:
            raise _NoArrays(f"it has a {name}")


_MNIST = "torchvision.datasets.mnist.MNIST"
_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "torch.utils.data.dataset.TensorDataset": _tensors,
    _MNIST: _images,
    "torchvision.datasets.mnist.QMNIST": _qmnist,
    "torchvision.datasets.cifar.CIFAR10": _images,
}
"""How to read arrays, by the class that defines ``__getitem__``."""


def _compare(source: OrderedSource, x: Any) -> None:
    """Raises ``_NoArrays`` unless the first and the last sample are those of ``x``."""
    if len(source) != len(x):
        raise _NoArrays(f"it has {len(x)} samples, but its arrays {len(source)}")
    for index in (0, len(x) - 1):
        if not _same(source[index], x[index]):
            raise _NoArrays(f"sample {index} differs from its arrays")


def _same(found: Any, expected: Any) -> bool:
    leaves, structure = jax.tree.flatten(found)
    others, other_structure = jax.tree.flatten(expected)
    if bool(structure != other_structure):  # type: ignore[operator]
        return False
    for a, b in zip(leaves, others, strict=True):
        b = as_array(b)
        b = b.astype(jax.dtypes.canonicalize_dtype(b.dtype), copy=False)
        a = a.astype(jax.dtypes.canonicalize_dtype(a.dtype), copy=False)
        if (a.dtype, a.shape) != (b.dtype, b.shape) or a.tobytes() != b.tobytes():
            return False
    return True
