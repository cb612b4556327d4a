"""The contender of `in_jit`, training."""

from workloads.in_jit.torch_batched import build

__all__ = ["build"]
