"""The contender of `in_jit`, training."""

from workloads.in_jit.scan_take_made import build

__all__ = ["build"]
