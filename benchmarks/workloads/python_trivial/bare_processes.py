"""The contender of `python_gil`, with a function that takes no time."""

from workloads.python_gil.bare_processes import build

__all__ = ["build"]
