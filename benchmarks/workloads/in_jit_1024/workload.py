"""The epoch of `in_jit` with batches of 1,024."""

from workloads.in_jit.workload import prepare

__all__ = ["prepare"]
