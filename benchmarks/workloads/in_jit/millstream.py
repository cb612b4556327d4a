"""Millstream's `scan_epoch` inside jit, as its README shows it."""

from dataset import Arrays
from workloads.host_loop.millstream import loader_of
from workloads.in_jit.workload import Body, Epoch, scan_of


def build(data: Arrays, body: Body) -> Epoch:
    """The epoch of Millstream's loader in one jit."""
    return scan_of(loader_of(data), 0, body)
