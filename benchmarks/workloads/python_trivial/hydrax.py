"""The contender of `python_gil`, with a function that takes no time."""

from workloads.python_gil.hydrax import build

__all__ = ["build"]
