"""The contender of `python_gil`, left alone."""

from workloads.python_gil.spdl_processes import build

__all__ = ["build"]
