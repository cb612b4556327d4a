"""The contender of `in_jit`, training."""

from workloads.in_jit.torch_numpy_loader import build

__all__ = ["build"]
