"""The contender of `in_jit`, training."""

from workloads.in_jit.scan_take_given import build

__all__ = ["build"]
