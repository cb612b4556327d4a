"""The interface of the Cereal library, implemented by Millstream.

To switch from Cereal, change the import and keep your code.

Cereal's documentation passes the source as the first argument of some stages, and its
code does not. Both forms work here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

import millstream
from millstream import (
    ArraySampleSource,
    CIFAR10Dataset,
    CIFAR10DiskSource,
    DevicePutTransform,
    MapTransform,
    MNISTDataset,
    MNISTDiskSource,
    Source,
    dataset_to_jax,
)
from millstream.cyreal import DataLoader

__all__ = [
    "ArraySampleSource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "DataLoader",
    "DevicePutTransform",
    "FlattenImageTransform",
    "HostCallbackTransform",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "Source",
    "dataset_to_jax",
]


def _applied(inner: Any, stage: Any) -> Any:
    """The stage, or ``inner`` followed by the stage if there is an ``inner``."""
    return stage if inner is None else stage(inner)


def BatchTransform(
    batch_size: int,
    drop_last: bool = False,
    pad_last_batch: bool = True,
    element_spec_override: Any = None,
) -> millstream.BatchTransform:
    """Makes batches. The last one is padded or, with ``drop_last``, dropped."""
    if not pad_last_batch and not drop_last:
        raise ValueError(
            "all batches must have the same shape. Enable pad_last_batch or drop_last."
        )
    return millstream.BatchTransform(
        batch_size, drop_last, pad_last_batch, element_spec_override
    )


def NormalizeImageTransform(
    inner: Source | None = None,
    image_key: str = "image",
    dtype: Any = jnp.float32,
    scale: float = 1 / 255,
    offset: float = 0.0,
) -> Any:
    """Converts ``image_key`` to ``dtype``, times ``scale``, plus ``offset``."""
    if isinstance(inner, str):
        inner, image_key = None, inner
    stage = millstream.NormalizeImageTransform(image_key, dtype, scale, offset)
    return _applied(inner, stage)


def FlattenImageTransform(inner: Source | None = None, image_key: str = "image") -> Any:
    """Flattens each image to a vector. It works before and after batching."""
    if isinstance(inner, str):
        inner, image_key = None, inner
    return _applied(inner, millstream.FlattenImageTransform(image_key))


def HostCallbackTransform(
    inner: Source | Callable[..., Any] | None = None,
    fn: Callable[..., Any] | None = None,
    element_spec_override: Any = None,
) -> Any:
    """Calls ``fn(batch, mask)`` in Python, once per delivered batch."""
    if not isinstance(inner, Source) and inner is not None:
        inner, fn = None, inner
    if fn is None:
        raise TypeError("HostCallbackTransform needs a function, fn=...")
    return _applied(inner, millstream.HostCallbackTransform(fn, element_spec_override))
