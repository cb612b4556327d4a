"""Hugging Face's `dataset[indices]` in the format "numpy", which its guide shows."""

from typing import Any

from datasets import Dataset

from workloads.hugging_face.hugging_face import orders
from workloads.hugging_face.workload import Stream


def fields(batch: Any) -> tuple[Any, Any, None]:
    """Features, label and no mask of a batch."""
    return batch["x"], batch["label"], None


def build(dataset: Dataset) -> Stream:
    """The stream of NumPy arrays."""
    rows: Any = dataset.with_format("numpy")
    return Stream((rows[chosen] for chosen in orders(len(dataset))), fields)
