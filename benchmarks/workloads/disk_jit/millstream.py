"""Millstream's scan_epoch inside jit, off the disk."""

from dataset import Arrays
from workloads.disk_loop.millstream import source_of
from workloads.host_loop.millstream import batched
from workloads.in_jit.workload import Body, Epoch, scan_of


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of Millstream's loader in one jit; the arrays are left alone."""
    return scan_of(batched(source_of()), 0, body)
