"""Torch's DataLoader in this process, with its default collation.

It indexes the tensors once per sample.
"""

from workloads.torch_dataset.torch_0_workers import build

__all__ = ["build"]
