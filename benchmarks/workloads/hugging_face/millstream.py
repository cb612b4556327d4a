"""Millstream's `DatasetSource` over the data set, as its guide recommends.

The format "numpy" gives samples that are arrays. Hugging Face's code holds the GIL, so
two processes are faster than threads.
"""

import millstream as ms
from datasets import Dataset

from dataset import BATCH
from workloads.hugging_face.workload import Stream, masked_fields

ENDLESS = 10**9


def build(dataset: Dataset) -> Stream:
    """The stream of `iterate` across epochs."""
    source = ms.DatasetSource(
        dataset.with_format("numpy"), workers=2, worker_kind="process"
    )
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH)])
    return Stream(loader.iterate(loader.init_state(0), steps=ENDLESS), masked_fields)
