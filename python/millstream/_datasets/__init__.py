"""Data sets that find, fetch and read their own files."""

from millstream._datasets.mnist import (
    FashionMNISTDataset,
    KMNISTDataset,
    MNISTDataset,
)

__all__ = ["FashionMNISTDataset", "KMNISTDataset", "MNISTDataset"]
