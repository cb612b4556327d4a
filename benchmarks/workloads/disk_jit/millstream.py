"""Millstream's `scan_epoch` inside jit, from files in the page cache."""

from dataset import Arrays
from workloads.disk_loop.millstream import source_of
from workloads.host_loop.millstream import batched
from workloads.in_jit.workload import Body, Epoch, scan_of


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of Millstream's loader in one jit. It reads files, not ``data``."""
    return scan_of(batched(source_of(data)), 0, body)
