"""The contender of `host_loop`: the same samples in memory."""

from workloads.host_loop.millstream import build

__all__ = ["build"]
