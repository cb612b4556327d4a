"""Millstream's loader with torch's interface over the same object, with one thread."""

from millstream.torch import DataLoader

from dataset import BATCH
from workloads.grain_source.workload import Digits, Loop


def build(digits: Digits) -> Loop:
    """The loop over batches of JAX arrays."""
    loader = DataLoader(digits, BATCH, shuffle=True)
    return Loop(lambda: loader)
