"""The contender of `in_jit`, training."""

from workloads.in_jit.jax_dataloader import build

__all__ = ["build"]
