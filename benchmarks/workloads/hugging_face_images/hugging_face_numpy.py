"""Hugging Face's `dataset[indices]` in the format "numpy"."""

from typing import Any

from datasets import Dataset

from workloads.hugging_face.hugging_face import orders
from workloads.hugging_face_images.workload import Stream


def build(dataset: Dataset) -> Stream:
    """The stream of batches."""
    rows: Any = dataset.with_format("numpy")
    return Stream(rows[chosen] for chosen in orders(len(dataset)))
