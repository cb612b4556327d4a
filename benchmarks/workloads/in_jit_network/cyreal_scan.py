"""The contender of `in_jit`, training."""

from workloads.in_jit.cyreal_scan import build

__all__ = ["build"]
