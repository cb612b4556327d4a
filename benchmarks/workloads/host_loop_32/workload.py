"""The loop of `host_loop` with batches of 32."""

from workloads.host_loop.workload import prepare

__all__ = ["prepare"]
