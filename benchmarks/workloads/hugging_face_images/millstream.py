"""Millstream's `as_source` with one thread, its default."""

import millstream as ms
from datasets import Dataset

from dataset import BATCH
from workloads.hugging_face_images.workload import Stream, masked_fields

ENDLESS = 10**9


def build(dataset: Dataset) -> Stream:
    """The stream of `iterate` across epochs."""
    loader = ms.DataLoader([ms.as_source(dataset), ms.BatchTransform(BATCH)])
    return Stream(loader.iterate(loader.init_state(0), steps=ENDLESS), masked_fields)
