"""The interface of the Cereal library, implemented by Millstream.

To switch from Cereal, change the import and keep your code.

Cereal's documentation passes the source as the first argument of some stages, and its
code does not. Both forms work here. docs/cyreal.md lists the differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import millstream
from millstream import (
    ArraySampleSource,
    CIFAR10Dataset,
    CIFAR10DiskSource,
    DevicePutTransform,
    DiskSampleSource,
    GymnaxSource,
    LoaderState,
    MNISTDataset,
    MNISTDiskSource,
    cyreal,
    dataset_to_jax,
)
from millstream.cyreal import DatasetProtocol, Source

__all__ = [
    "ArraySampleSource",
    "BatchTransform",
    "CIFAR10Dataset",
    "CIFAR10DiskSource",
    "DataLoader",
    "DatasetProtocol",
    "DevicePutTransform",
    "DiskSampleSource",
    "FlattenImageTransform",
    "GymnaxSource",
    "HostCallbackTransform",
    "LoaderState",
    "MNISTDataset",
    "MNISTDiskSource",
    "MapTransform",
    "NormalizeImageTransform",
    "Source",
    "dataset_to_jax",
]


class DataLoader(cyreal.DataLoader):
    """``millstream.cyreal.DataLoader`` with a second form of ``scan_epoch``."""

    def scan_epoch(
        self,
        state: Any,
        carry: Any,
        body_fn: Callable[..., Any],
        unroll: bool | int = False,
        *,
        steps: int | None = None,
        progress: bool = False,
    ) -> Any:
        """Runs ``body_fn`` for each batch of an epoch.

        ``scan_epoch(state, carry, body_fn)`` calls ``body_fn(carry, batch, mask)`` and
        returns ``(state, carry, outputs)``.

        ``scan_epoch(carry, None, body_fn)`` is for a pytree that contains a loader
        state. It calls ``body_fn(carry, None)``, which takes batches itself with
        ``next_batch``, and returns ``(carry, outputs)``.
        """
        if not _contains_state(state):
            return super().scan_epoch(
                state, carry, body_fn, unroll, steps=steps, progress=progress
            )
        if carry is not None:
            raise TypeError(
                "scan_epoch(carry, None, body_fn) takes None as its second argument, "
                f"not {type(carry).__name__}, if the first contains a loader state. To "
                "let scan_epoch take the batches, pass the loader state itself."
            )
        if progress:
            raise ValueError(
                "scan_epoch(progress=True) needs the loader state as its first argument"
            )
        length = self.steps_per_epoch if steps is None else steps
        return jax.lax.scan(body_fn, state, None, length=length, unroll=unroll)


def _contains_state(tree: Any) -> bool:
    """Whether ``tree`` is a pytree that contains a loader state, and not a state."""
    if isinstance(tree, LoaderState):
        return False
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, LoaderState))
    return any(isinstance(leaf, LoaderState) for leaf in leaves)


def _is_source(value: Any) -> bool:
    """Whether ``value`` has the methods of a source."""
    names = ("init_state", "next", "steps_per_epoch")
    if isinstance(value, millstream.Source):
        return True
    return not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _applied(inner: Any, stage: Any) -> Any:
    """The stage, or ``inner`` followed by the stage if there is an ``inner``."""
    return stage if inner is None else stage(inner)


def BatchTransform(
    batch_size: int,
    drop_last: bool = False,
    pad_last_batch: bool = True,
    element_spec_override: Any = None,
) -> millstream.BatchTransform:
    """Makes batches. The last one is padded or, with ``drop_last``, dropped.

    ``element_spec_override`` describes one sample.
    """
    if not pad_last_batch and not drop_last:
        raise ValueError(
            "all batches must have the same shape. Enable pad_last_batch or drop_last."
        )
    return cyreal.BatchTransform(
        batch_size, drop_last, pad_last_batch, element_spec_override
    )


def NormalizeImageTransform(
    inner: Any = None,
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


def FlattenImageTransform(inner: Any = None, image_key: str = "image") -> Any:
    """Flattens each image to a vector. It works before and after batching."""
    if isinstance(inner, str):
        inner, image_key = None, inner
    return _applied(inner, millstream.FlattenImageTransform(image_key))


def MapTransform(
    inner: Any = None,
    fn: Callable[..., Any] | None = None,
    element_spec_override: Any = None,
) -> Any:
    """Maps values by ``fn(value, mask) -> value``, which JAX traces."""
    return _with_function(millstream.MapTransform, inner, fn, element_spec_override)


def HostCallbackTransform(
    inner: Any = None,
    fn: Callable[..., Any] | None = None,
    element_spec_override: Any = None,
) -> Any:
    """Calls ``fn(batch, mask)`` in Python, once per delivered batch."""
    kind = millstream.HostCallbackTransform
    return _with_function(kind, inner, fn, element_spec_override)


def _with_function(kind: Any, inner: Any, fn: Any, override: Any) -> Any:
    """Returns ``kind(fn, override)``, after ``inner`` if that is a source.

    If ``inner`` is not a source, the arguments are ``(fn, element_spec_override)``.
    """
    if inner is not None and not _is_source(inner):
        if fn is not None:
            inner, fn, override = None, inner, fn
        else:
            inner, fn = None, inner
    if fn is None:
        raise TypeError(f"{kind.__name__} needs a function, fn=...")
    return _applied(inner, kind(fn, override))
