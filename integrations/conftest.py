"""Checks that Millstream and another package give the same values."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def check_same(found: Any, expected: Any) -> None:
    """Checks that two pytrees have the same structure, dtypes, shapes and bits."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for position, (a, b) in enumerate(pairs):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"leaf {position}"
        same = a.tobytes() == b.tobytes()
        assert same, f"leaf {position}: {np.sum(a != b)} of {a.size} values differ"


def check_walks(ours: Any, theirs: Any, steps: int) -> None:
    """Checks the first batches and masks of two loaders.

    Millstream's loader runs in a Python loop and inside jit, the other one inside jit.
    """
    key = jax.random.PRNGKey(1)
    expected, _ = scanned(theirs, theirs.init_state(key), steps)
    found, _ = scanned(ours, ours.init_state(key), steps)
    check_same(found, expected)
    batches = list(ours.iterate(ours.init_state(key), steps=steps))
    check_same(jax.tree.map(lambda *rows: np.stack(rows), *batches), expected)


def scanned(loader: Any, state: Any, steps: int) -> tuple[Any, Any]:
    """Returns the stacked batches and masks of a jitted scan, and the last state."""

    def step(state: Any, _: None) -> Any:
        batch, state, mask = loader.next(state)
        return state, (batch, mask)

    def run(state: Any) -> Any:
        return jax.lax.scan(step, state, None, length=steps)

    state, found = jax.jit(run)(state)
    return found, state
