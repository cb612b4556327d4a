"""Cyreal's `BufferTransform` over the same source, in a scan of `next`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
from cyreal.loader import DataLoader
from cyreal.transforms import BufferTransform

from replay import DRAWN, SEED, Replay, Transitions


def filled(state: Any, change: Callable[[Any], Any]) -> Any:
    """The loader's state with another state of the buffer."""
    return replace(state, inner_state=change(state.inner_state))


def build(capacity: int, write_mode: str) -> Replay:
    """The steps of the loader."""
    buffer = BufferTransform(
        capacity, DRAWN, DRAWN, mode="shuffled", write_mode=write_mode
    )
    loader = DataLoader([Transitions(), buffer])
    return Replay(loader.init_state(jax.random.PRNGKey(SEED)), loader.next, filled)
