"""The loop of `host_loop`, off IDX files that the system holds in memory."""

from workloads.host_loop.workload import measure

__all__ = ["measure"]
