"""Millstream's `iterate` over uint8, normalised in the engine."""

import millstream as ms
import numpy as np

from ours import epochs
from streams import Stream
from workloads.normalize_channels.workload import BATCH, MEAN, STD


def build(images: np.ndarray) -> Stream:
    """The stream of the loader over the images."""
    source = ms.ArraySampleSource({"image": images}, ordering="shuffle")
    normalize = ms.NormalizeImageTransform("image", mean=MEAN, std=STD)
    batches = epochs(source, BATCH, normalize)
    return Stream(lambda: (batch["image"] for batch in batches()))
