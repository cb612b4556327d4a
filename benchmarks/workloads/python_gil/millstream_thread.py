"""Millstream's worker threads, only one of them.

Two threads share one GIL, so they should be as fast as one.
"""

from functools import partial

from workloads.python_gil import millstream

build = partial(millstream.build, worker_kind="thread", workers=1)
