"""Checks a source in a Python loop, inside jit and after a resume at every step."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
from conftest import check_same

BATCH = 7


def check_source(
    source: Any, rows: list[dict[str, Any]], dtypes: dict[str, Any]
) -> None:
    """Checks that the samples of a source are ``rows``, which another library read.

    ``dtypes`` are those that the fields should have, with JAX's 32-bit integers.
    """
    assert len(source) == len(rows)
    for i, row in enumerate(rows):
        sample = source[i]
        assert sample.keys() == dtypes.keys()
        for name, value in sample.items():
            np.testing.assert_array_equal(value, np.asarray(row[name]))
    data = {
        name: np.stack([np.asarray(row[name], dtype) for row in rows])
        for name, dtype in dtypes.items()
    }
    check_deliveries(source, data)


def check_deliveries(source: Any, data: dict[str, np.ndarray]) -> None:
    """Checks the batches of a source whose sample i is row i of each array."""
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH)])
    start = loader.init_state(3)
    steps = loader.steps_per_epoch

    states, state = [], start
    expected = []
    for _ in range(steps):
        samples = loader.which_samples(state)
        batch = {}
        for name, column in data.items():
            batch[name] = column[samples]
            batch[name][samples < 0] = 0
        expected.append((batch, samples >= 0))
        states.append(state)
        _, state, _ = loader.next_batch(state)
    assert sorted(
        i for _, s in enumerate(states) for i in loader.which_samples(s) if i >= 0
    ) == list(range(len(source)))

    check_same([tuple(item) for item in loader.iterate(start)], expected)

    step = jax.jit(loader.next_batch)
    for state, (batch, mask) in zip(states, expected, strict=True):
        found, _, found_mask = step(state)
        check_same((found, found_mask), (batch, mask))

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry, (batch, mask)

    _, _, scanned = jax.jit(lambda s: loader.scan_epoch(s, 0, body))(start)
    check_same(scanned, jax.tree.map(lambda *rows: np.stack(rows), *expected))

    again = ms.DataLoader([source, ms.BatchTransform(BATCH)])
    for k, state in enumerate(states):
        saved = loader.save(state)
        rest = [tuple(item) for item in again.iterate(again.restore(saved))]
        check_same(rest, expected[k:])
