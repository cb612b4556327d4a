"""The epoch of `in_jit`, from IDX files in the page cache."""

from workloads.in_jit.workload import prepare

__all__ = ["prepare"]
