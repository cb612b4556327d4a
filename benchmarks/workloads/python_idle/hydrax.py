"""The contender of `python_gil`, left alone."""

from workloads.python_gil.hydrax import build

__all__ = ["build"]
