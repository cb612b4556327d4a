"""The contender of `in_jit`, training."""

from workloads.in_jit.grain_batched import build

__all__ = ["build"]
