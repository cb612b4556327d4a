"""The contender of `in_jit`, training."""

from workloads.in_jit.scan_slice import build

__all__ = ["build"]
