"""Copies the bytes of each batch, in the order of the file, into one reused batch.

Includes reading the memory map. Does not include a shuffle or passing the batch to JAX.
"""

from pathlib import Path

from by_hand import copied
from streams import Stream
from workloads.disk_large.workload import BATCH, mapped


def build(path: Path) -> Stream:
    """The stream of plain copies."""
    return Stream(copied(mapped(path), BATCH), reaches_jax=False, shuffled=False)
