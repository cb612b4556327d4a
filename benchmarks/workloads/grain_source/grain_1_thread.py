"""Grain's DataLoader as in the tutorial, with one read thread instead of 16."""

import grain

from workloads.grain_source.grain_no_threads import loop_of
from workloads.grain_source.workload import Digits, Loop

READ = grain.ReadOptions(num_threads=1, prefetch_buffer_size=256)


def build(digits: Digits) -> Loop:
    """The loop with one thread."""
    return loop_of(digits, READ)
