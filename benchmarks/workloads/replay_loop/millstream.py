"""Millstream's `run` over the loader of `replay_fifo/millstream.py`."""

from collections.abc import Iterator
from typing import Any

from replay import SEED
from workloads.replay_fifo.millstream import filled, loader_of
from workloads.replay_loop.workload import Loop


def build(capacity: int) -> Loop:
    """The loop over `run`."""
    loader = loader_of(capacity, "fifo")

    def batches(state: Any) -> Iterator[Any]:
        return (batch for batch, _ in loader.run(state, epochs=1))

    return Loop(loader.init_state(SEED), filled, batches)
