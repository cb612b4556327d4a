"""The contender of `python_gil`, left alone."""

from workloads.python_gil.torch_workers import build

__all__ = ["build"]
