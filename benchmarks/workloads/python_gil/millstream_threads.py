"""Millstream's worker threads, which share one GIL."""

from functools import partial

from workloads.python_gil import millstream

build = partial(millstream.build, worker_kind="thread")
