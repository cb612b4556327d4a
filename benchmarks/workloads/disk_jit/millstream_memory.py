"""The contender of `in_jit`: the same samples in memory."""

from workloads.in_jit.millstream import build

__all__ = ["build"]
