"""Millstream's scan_epoch inside jit, off the disk."""

from dataset import Arrays
from workloads.disk_loop.millstream import loader_of
from workloads.in_jit.workload import Body, Epoch, scan_of


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of Millstream's loader in one jit; the arrays are left alone."""
    return scan_of(loader_of(), 0, body)
