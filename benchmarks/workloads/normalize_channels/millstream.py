"""Millstream's `iterate` over uint8, normalised by a `MapTransform` after batching.

XLA compiles the function; casting in the engine first takes twice the CPU time.
"""

from typing import Any

import jax.numpy as jnp
import millstream as ms
import numpy as np

from ours import epochs
from streams import Stream
from workloads.normalize_channels.workload import BATCH, FACTOR, OFFSET


def normalized(image: Any, mask: Any) -> Any:
    """A batch as float32, normalised by channel."""
    return image.astype(jnp.float32) * FACTOR + OFFSET


def build(images: np.ndarray) -> Stream:
    """The stream of the loader over the images."""
    source = ms.ArraySampleSource(images, ordering="shuffle")
    return Stream(epochs(source, BATCH, ms.MapTransform(normalized)))
