"""Millstream's `BufferTransform` over a stream, in a scan of `next_batch`."""

from collections.abc import Callable
from typing import Any

import millstream as ms

from replay import DRAWN, SEED, Replay, Transitions


def loader_of(capacity: int, write_mode: str) -> ms.DataLoader:
    """The loader of the transitions that the buffer draws."""
    buffer = ms.BufferTransform(
        capacity, DRAWN, DRAWN, mode="shuffled", write_mode=write_mode
    )
    return ms.DataLoader([Transitions(), buffer])


def filled(state: Any, change: Callable[[Any], Any]) -> Any:
    """The loader's state with another state of the buffer."""
    return ms.LoaderState(state.words, change(state.stream))


def build(capacity: int, write_mode: str) -> Replay:
    """The steps of the loader."""
    loader = loader_of(capacity, write_mode)
    return Replay(loader.init_state(SEED), loader.next_batch, filled)
