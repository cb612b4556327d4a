"""The contender of `in_jit`, training."""

from workloads.in_jit.millstream_loop import build

__all__ = ["build"]
