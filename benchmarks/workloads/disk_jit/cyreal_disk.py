"""Cyreal's scan_epoch over a DiskSource, which calls Python for 1024 samples at once.

It reads samples as its own data set does: from memory maps of the unpacked files.
"""

from typing import Any

import jax
import numpy as np
from cyreal.loader import DataLoader
from cyreal.sources import DiskSource
from cyreal.transforms import BatchTransform, DevicePutTransform

from dataset import BATCH, IMAGES, LABELS, Arrays, unpacked
from workloads.in_jit.workload import Body, Epoch, scan_of

PREFETCH = 1024


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of cyreal's loader in one jit."""
    shape = data.image.shape
    image = np.memmap(unpacked() / IMAGES, np.uint8, "r", offset=16, shape=shape)
    label = np.memmap(unpacked() / LABELS, np.uint8, "r", offset=8, shape=shape[:1])

    def sample(index: int) -> dict[str, Any]:
        return {"image": np.asarray(image[index]), "label": np.int32(label[index])}

    source = DiskSource(
        length=len(data), sample_fn=sample, ordering="shuffle", prefetch_size=PREFETCH
    )
    loader = DataLoader(
        pipeline=[
            source,
            BatchTransform(batch_size=BATCH, pad_last_batch=True),
            DevicePutTransform(),
        ]
    )
    return scan_of(loader, jax.random.PRNGKey(0), body)
