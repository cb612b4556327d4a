"""Millstream with a buffer of 1e3 transitions, which stay in the processor's cache."""

from workloads.replay_fifo.millstream import build

__all__ = ["CAPACITY", "build"]

CAPACITY = 10**3
