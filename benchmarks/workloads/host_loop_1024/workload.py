"""The loop of `host_loop` with batches of 1,024."""

from workloads.host_loop.workload import prepare

__all__ = ["prepare"]
