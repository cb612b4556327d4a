"""The contender of `in_jit`, training."""

from workloads.in_jit.millstream import build

__all__ = ["build"]
