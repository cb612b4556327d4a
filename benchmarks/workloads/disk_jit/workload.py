"""The epoch of `in_jit` with its sum, off IDX files that the system holds in memory."""

from workloads.in_jit.workload import measure

__all__ = ["measure"]
