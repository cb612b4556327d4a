"""Checks that a loader delivers the samples that another library reads."""

from __future__ import annotations

import json
from typing import Any

import jax
import millstream as ms
import numpy as np
from conftest import check_same

BATCH = 4


def plain(leaf: Any) -> np.ndarray:
    """Returns a value of a sample as an array of the dtype that JAX gives it."""
    if type(leaf).__module__ == "torch":
        leaf = leaf.detach().resolve_conj().numpy()
    array = np.asarray(leaf)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def stacked(samples: list[Any]) -> Any:
    """Returns samples as one pytree, with a leading axis."""
    return jax.tree.map(lambda *rows: np.stack([plain(row) for row in rows]), *samples)


def check_reading(data: Any, samples: list[Any], **options: Any) -> Any:
    """Checks every sample of ``as_source(data)`` and returns the source.

    ``samples`` are those that the library reads. They are compared by index, in a
    Python loop, inside jit, in a scan and after resuming at each step.
    """
    source: Any = ms.as_source(data, ordering="sequential", **options)
    assert len(source) == len(samples)
    for index, sample in enumerate(samples):
        found = jax.tree.map(plain, source[index])
        check_same(found, jax.tree.map(plain, sample))
    batch = ms.BatchTransform(BATCH, remainder="pad")
    loader = ms.DataLoader([source, batch])
    steps = -(-len(samples) // BATCH)
    in_loop = list(loader.run(seed=1, epochs=1))
    assert len(in_loop) == steps
    states = [loader.init_state(1)]
    jitted = jax.jit(loader.next_batch)
    for step, (value, mask) in enumerate(in_loop):
        rows = samples[step * BATCH : (step + 1) * BATCH]
        count = int(mask.sum())
        valid = jax.tree.map(lambda x, n=count: x[:n], value)
        check_same(valid, stacked(rows))
        in_jit, state, in_jit_mask = jitted(states[-1])
        check_same((in_jit, in_jit_mask), (value, mask))
        states.append(state)
    _, _, scanned = loader.scan_epoch(states[0], None, _kept)
    check_same(scanned, jax.tree.map(lambda *x: np.stack(x), *in_loop))
    saved = [json.loads(json.dumps(loader.save(state))) for state in states[:-1]]
    other = ms.DataLoader([ms.as_source(data, ordering="sequential"), batch])
    for step, state in enumerate(saved):
        rest = list(other.run(other.restore(state), epochs=1))
        check_same(rest, in_loop[step:])
    return source


def check_shuffled(data: Any, samples: list[Any]) -> None:
    """Checks that each epoch of a shuffled loader has each sample once."""
    loader = ms.DataLoader([data, ms.BatchTransform(BATCH, remainder="partial")])
    expected = sorted(_bytes(sample) for sample in samples)
    batches = [value for value, _ in loader.run(seed=5, epochs=2)]
    orders = []
    for epoch in range(2):
        of_epoch = batches[epoch * len(loader) : (epoch + 1) * len(loader)]
        rows = jax.tree.map(lambda *parts: np.concatenate(parts), *of_epoch)
        count = len(jax.tree.leaves(rows)[0])
        orders.append(
            [_bytes(jax.tree.map(lambda x, k=k: x[k], rows)) for k in range(count)]
        )
        assert sorted(orders[-1]) == expected
    assert orders[0] != orders[1] or len(set(expected)) < 5


def _kept(carry: Any, batch: Any, mask: Any) -> Any:
    return carry, (batch, mask)


def _bytes(sample: Any) -> bytes:
    return b"".join(plain(leaf).tobytes() for leaf in jax.tree.leaves(sample))
