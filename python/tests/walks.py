"""Every way to iterate over a loader's batches, and functions to compare them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest
from millstream import BatchTransform, DataLoader

Walk = tuple[Any, np.ndarray, np.ndarray]
"""Batches, masks and the words of the states after them, each stacked along axis 0."""


def stacked(steps: Iterable[tuple[Any, Any, Any]]) -> Walk:
    host = [jax.tree.map(np.asarray, step) for step in steps]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *host)


def specified(loader: DataLoader, state: Any, steps: int) -> Walk:
    """Returns the specified batches: one thread, no cache, no JAX, native stages."""
    built = loader._built
    words = np.asarray(state.words)
    found = []
    for _ in range(steps):
        *leaves, mask = built.rows_of(built.engine.batch(words))
        words = built.plan.next_state(words)
        # Copied, because the rows belong to the engine.
        found.append((built.unflatten([x.copy() for x in leaves]), mask.copy(), words))
    return stacked(found)


def indexed(loader: DataLoader, data: Any, state: Any, steps: int) -> Walk:
    """Returns the same by NumPy indexing with `which_samples`, zeros for padding."""
    built = loader._built
    words = np.asarray(state.words)
    found = []
    for _ in range(steps):
        samples = loader.which_samples(words)
        mask = samples >= 0

        def taken(x: Any, samples: Any = samples, mask: Any = mask) -> np.ndarray:
            row = np.asarray(x)[samples]
            row[~mask] = 0
            return row

        words = built.plan.next_state(words)
        found.append((jax.tree.map(taken, data), mask, words))
    return stacked(found)


def iterated(loader: DataLoader, state: Any, steps: int) -> Walk:
    iterator = loader.iterate(state, steps=steps)
    return stacked((batch, mask, iterator.state.words) for batch, mask in iterator)


def stepped(loader: DataLoader, state: Any, steps: int, step: Any = None) -> Walk:
    """Returns batches of `next_batch`, or of `step` instead."""
    step = loader.next_batch if step is None else step
    found = []
    for _ in range(steps):
        batch, state, mask = step(state)
        found.append((batch, mask, state.words))
    return stacked(found)


def jitted(loader: DataLoader, state: Any, steps: int) -> Walk:
    return stepped(loader, state, steps, jax.jit(loader.next_batch))


def _keep(carry: Any, batch: Any, mask: Any) -> tuple[Any, Any]:
    return carry + 1, (batch, mask)


def scanned(loader: DataLoader, state: Any, steps: int, **more: Any) -> Walk:
    """Returns batches of `scan_epoch`, with the words of the last state only."""
    after, count, (batches, masks) = loader.scan_epoch(
        state, 0, _keep, steps=steps, **more
    )
    assert int(count) == steps
    batches, masks = jax.tree.map(np.asarray, (batches, masks))
    return batches, masks, np.asarray(after.words)


def same_bytes(found: Any, expected: Any) -> None:
    """Fails unless both are pytrees with the same structure, dtypes and bytes."""
    a, b = jax.tree.structure(found), jax.tree.structure(expected)
    assert a == b
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(found),
        jax.tree.leaves(expected),
        strict=True,
    )
    for (path, left), right in pairs:
        name = jax.tree_util.keystr(path)
        left, right = np.asarray(left), np.asarray(right)
        assert left.dtype == right.dtype, name
        assert left.shape == right.shape, name
        if left.tobytes() != right.tobytes():
            differ = (
                np.flatnonzero(
                    [
                        a.tobytes() != b.tobytes()
                        for a, b in zip(left, right, strict=True)
                    ]
                )
                if left.ndim
                else [0]
            )
            raise AssertionError(f"{name} differs at {list(differ)[:20]}")


def same_walk(found: Walk, expected: Walk) -> None:
    """Compares batches, masks and states. A scan has only the last state."""
    same_bytes(found[:2], expected[:2])
    words, wanted = found[2], expected[2]
    same_bytes(words, wanted if words.ndim == wanted.ndim else wanted[-1])


def taken(data: Any, which: Any) -> Any:
    """Returns the rows ``which`` of every array."""
    return jax.tree.map(lambda x: x[which], data)


def check(source: Any, data: Any) -> None:
    """Compares a source with the arrays of its samples, in every way of delivery."""
    n = len(jax.tree.leaves(data)[0])
    assert len(source) == source.num_samples == n
    for i in (0, n // 2, -1):
        same_bytes(source[i], taken(data, i))
    for wrong in (n, -n - 1):
        with pytest.raises(IndexError, match=f"sample {wrong} of {n}"):
            source[wrong]
    loader = DataLoader([source, BatchTransform(7)])
    state = loader.init_state(3)
    steps = loader.steps_per_epoch + 2
    expected = indexed(loader, data, state, steps)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)
    if source.arrays() is not None:
        traced = DataLoader([source, BatchTransform(7)], traced=True)
        same_walk(scanned(traced, state, steps), expected)


def resumes_everywhere(loader: DataLoader, state: Any, steps: int) -> None:
    """Fails unless the loader continues as specified from the state at every step."""
    walk = specified(loader, state, steps)
    for step in range(steps):
        rest = jax.tree.map(lambda x, step=step: x[step:], walk)
        same_walk(iterated(loader, state, steps - step), rest)
        _, state, _ = loader.next_batch(state)


def maps_over_seeds(loader: DataLoader, seeds: int, steps: int) -> None:
    """Fails unless `vmap` over seeds gives the batches of each seed."""
    states = jax.vmap(loader.init_state)(np.arange(seeds))
    several = stepped(loader, states, steps, jax.jit(jax.vmap(loader.next_batch)))
    for seed in range(seeds):
        expected = specified(loader, loader.init_state(seed), steps)
        same_walk(jax.tree.map(lambda x, seed=seed: x[:, seed], several), expected)


def scans_over_seeds(loader: DataLoader, seeds: int, steps: int) -> None:
    """Fails unless `vmap` of `scan_epoch` gives the batches of each seed."""

    def run(state: Any) -> Any:
        _, _, (batches, masks) = loader.scan_epoch(state, 0, _keep, steps=steps)
        return batches, masks

    together = jax.jit(jax.vmap(run))(jax.vmap(loader.init_state)(np.arange(seeds)))
    for seed in range(seeds):
        expected = specified(loader, loader.init_state(seed), steps)
        same_bytes(jax.tree.map(lambda x, seed=seed: x[seed], together), expected[:2])
