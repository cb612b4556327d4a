"""Torch's DataLoader with two persistent workers and its default collation.

Each worker collates into shared memory and prefetches four batches.
"""

from workloads.torch_dataset.torch_2_workers import build

__all__ = ["build"]
