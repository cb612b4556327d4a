"""The transforms of Cyreal 0.2.x."""

from __future__ import annotations

import millstream
from millstream import (
    BufferTransform,
    DevicePutTransform,
    FlattenTransform,
    HostCallbackTransform,
    MapTransform,
    NormalizeImageTransform,
    RenameTransform,
    TimeSeriesBatchTransform,
)
from millstream._core.description import Tree
from millstream.cyreal import _batch
from millstream.cyreal._protocols import SourceTransform

__all__ = [
    "BatchTransform",
    "BufferTransform",
    "DevicePutTransform",
    "FlattenTransform",
    "HostCallbackTransform",
    "MapTransform",
    "NormalizeImageTransform",
    "RenameTransform",
    "SourceTransform",
    "TimeSeriesBatchTransform",
]


def BatchTransform(
    batch_size: int,
    drop_last: bool = False,
    pad_last_batch: bool = False,
    element_spec_override: Tree = None,
) -> millstream.BatchTransform:
    """Makes batches. The last one is filled with samples of the next epoch.

    With ``drop_last`` it is left out, and with ``pad_last_batch`` it is filled with
    zeros. ``element_spec_override`` describes one sample. Building the pipeline raises
    ``ValueError`` if the samples differ from it.
    """
    return _batch.BatchTransform(
        batch_size,
        drop_last,
        pad_last_batch,
        element_spec_override,
        remainder="" if drop_last or pad_last_batch else "wrap",
    )
