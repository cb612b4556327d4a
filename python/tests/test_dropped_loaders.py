"""A program may drop a loader before XLA has run the calls of its last batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest

ROWS = np.random.default_rng(0).normal(size=(1000, 20)).astype(np.float32)


def load(i: int) -> dict[str, Any]:
    return {"x": ROWS[i]}


@jax.jit
def step(params: Any, batch: Any, mask: Any) -> Any:
    x = batch["x"]
    for _ in range(4):  # slow enough that calls are still queued at the end
        x = jnp.tanh(x @ jnp.ones((20, 20)))
    return params + jnp.mean(x, where=mask[:, None])


def sources(tmp_path: Any) -> dict[str, Any]:
    np.save(tmp_path / "x.npy", ROWS)
    return {
        "arrays": ms.ArraySampleSource({"x": ROWS}),
        "files": ms.NpySource({"x": tmp_path / "x.npy"}),
        "functions": ms.DiskSampleSource(1000, load),
    }


STAGES: dict[str, list[Any]] = {
    "native": [ms.BatchTransform(64)],
    "traced": [
        ms.BatchTransform(64),
        ms.MapTransform(lambda batch, mask: {"x": batch["x"] * 2}),
    ],
}


def in_a_run(loader: Any, params: Any) -> Any:
    for batch, mask in loader.run(epochs=3):
        params = step(params, batch, mask)
    return params


def in_epochs(loader: Any, params: Any) -> Any:
    for epoch in loader.epochs(3):
        for batch, mask in epoch:
            params = step(params, batch, mask)
    return params


def by_next_batch(loader: Any, params: Any) -> Any:
    state = loader.init_state(0)
    for _ in range(3 * len(loader)):
        batch, state, mask = loader.next_batch(state)
        params = step(params, batch, mask)
    return params


def with_break(loader: Any, params: Any) -> Any:
    for loop in range(3):
        run = loader.run(epochs=3)
        for batch, mask in run:
            params = step(params, batch, mask)
            if run.step == 10 + loop:
                break
    return params


@pytest.mark.parametrize("loop", [in_a_run, in_epochs, by_next_batch, with_break])
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("kind", ["arrays", "files", "functions"])
def test_a_loop_whose_loader_is_dropped_has_the_same_result(
    loop, stages, kind, tmp_path
):
    source = sources(tmp_path)[kind]
    kept = ms.DataLoader([source, *STAGES[stages]])
    expected = np.asarray(loop(kept, jnp.zeros(())))
    for _ in range(3 if kind == "functions" else 8):
        params = loop(ms.DataLoader([source, *STAGES[stages]]), jnp.zeros(()))
        assert np.array_equal(np.asarray(params), expected)
