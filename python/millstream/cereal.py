"""Cereal's vocabulary over Millstream: change the import and keep the code.

Cereal documents some stages with the source first and uses them without it; both forms
work here. A batch is padded or its remainder dropped, and one of them has to be chosen.
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
    DataLoader,
    DevicePutTransform,
    MapTransform,
    MNISTDataset,
    MNISTDiskSource,
    Source,
    dataset_to_jax,
)

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


def _placed(inner: Any, stage: Any) -> Any:
    """The stage, or the longer pipeline where a source was given."""
    return stage if inner is None else stage(inner)


def BatchTransform(
    batch_size: int,
    drop_last: bool = False,
    pad_last_batch: bool = True,
    element_spec_override: Any = None,
) -> millstream.BatchTransform:
    """Batches whose remainder is padded or, with ``drop_last``, dropped."""
    if not pad_last_batch and not drop_last:
        raise ValueError("Enable pad_last_batch or drop_last: batches have one shape")
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
    """``image_key`` as ``dtype``, times ``scale``, plus ``offset``."""
    if isinstance(inner, str):
        inner, image_key = None, inner
    stage = millstream.NormalizeImageTransform(image_key, dtype, scale, offset)
    return _placed(inner, stage)


def FlattenImageTransform(inner: Source | None = None, image_key: str = "image") -> Any:
    """A vector of each image, before batching or after."""
    if isinstance(inner, str):
        inner, image_key = None, inner
    return _placed(inner, millstream.FlattenImageTransform(image_key))


def HostCallbackTransform(
    inner: Source | Callable[..., Any] | None = None,
    fn: Callable[..., Any] | None = None,
    element_spec_override: Any = None,
) -> Any:
    """``fn(batch, mask)`` in Python, once a delivered batch."""
    if not isinstance(inner, Source) and inner is not None:
        inner, fn = None, inner
    if fn is None:
        raise TypeError("HostCallbackTransform needs a function, fn=...")
    return _placed(inner, millstream.HostCallbackTransform(fn, element_spec_override))
