"""The stage that makes batches, with the arguments of Cyreal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax

import millstream
from millstream._core.description import Tree


class _BatchTransform(millstream.BatchTransform):
    one_mask = True


def BatchTransform(
    batch_size: int,
    drop_last: bool = False,
    pad_last_batch: bool = False,
    element_spec_override: Tree = None,
    *,
    remainder: str = "",
) -> millstream.BatchTransform:
    """Makes batches. The last one is padded or, with ``drop_last``, dropped.

    ``element_spec_override`` describes one sample. Building the pipeline raises
    ``ValueError`` if the samples differ from it.
    """
    stage = _BatchTransform(batch_size, drop_last, pad_last_batch, remainder=remainder)
    if element_spec_override is None:
        return stage

    def batched(leaf: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((stage.batch_size, *leaf.shape), leaf.dtype)

    spec = jax.tree.map(batched, element_spec_override)
    return replace(stage, element_spec_override=spec)
