"""The contender of `in_jit`, training."""

from workloads.in_jit.tfdata_gather import build

__all__ = ["build"]
