"""remainder="partial": stages see only the rows of the shorter last batch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest

N, BATCH, FEATURES = 10, 4, 7


def rows() -> np.ndarray:
    return np.arange(N * FEATURES, dtype=np.float32).reshape(N, FEATURES)


def loader_of(*stages: Any, **more: Any) -> ms.DataLoader:
    source = ms.ArraySampleSource({"x": rows()}, "sequential")
    batches = ms.BatchTransform(BATCH, remainder="partial")
    return ms.DataLoader([source, batches, *stages], **more)


def epoch(loader: ms.DataLoader) -> list[tuple[Any, Any]]:
    """Returns an epoch, after checking that iterate and next_batch agree."""
    state = loader.init_state(0)
    looped = [*loader.iterate(state)]
    for batch, mask in looped:
        stepped, state, other = loader.next_batch(state)
        np.testing.assert_array_equal(mask, other)
        jax.tree.map(np.testing.assert_array_equal, stepped, batch)
    return looped


def summary(batch: Any, mask: Any) -> Any:
    return {
        "mean": batch["x"].mean(0),
        "swapped": batch["x"].T,
        "rows": jnp.float32(len(mask)),
    }


@pytest.mark.parametrize("traced", [False, True])
def test_a_stage_sees_a_short_batch_and_keeps_its_features(traced: bool) -> None:
    batches = epoch(loader_of(ms.MapTransform(summary), traced=traced))
    assert [mask.shape for _, mask in batches] == [(4,), (4,), (2,)]
    for i, (batch, mask) in enumerate(batches):
        expected = rows()[i * BATCH : (i + 1) * BATCH]
        assert np.asarray(mask).all()
        np.testing.assert_allclose(batch["mean"], expected.mean(0), rtol=1e-6)
        np.testing.assert_array_equal(batch["swapped"], expected.T)
        assert int(batch["rows"]) == len(expected)


def test_callbacks_between_stages_see_it_too() -> None:
    seen = []

    def halved(batch: Any, mask: np.ndarray) -> Any:
        seen.append((batch["swapped"].shape, mask.shape))
        return {**batch, "swapped": batch["swapped"] / 2}

    total = ms.MapTransform(lambda b, m: {**b, "total": b["swapped"].sum()})
    loader = loader_of(
        ms.MapTransform(summary), ms.HostCallbackTransform(halved), total
    )
    batches = epoch(loader)
    assert seen[-1] == ((FEATURES, 2), (2,))
    for i, (batch, _) in enumerate(batches):
        expected = rows()[i * BATCH : (i + 1) * BATCH]
        np.testing.assert_array_equal(batch["swapped"], expected.T / 2)
        np.testing.assert_allclose(batch["total"], expected.sum() / 2)
        assert batch["mean"].shape == (FEATURES,)


def test_a_callback_may_declare_its_spec_for_a_full_batch() -> None:
    def first(batch: Any, mask: np.ndarray) -> Any:
        return {"first": batch["x"][:, 0], "mean": batch["x"].mean(0)}

    spec = {
        "first": jax.ShapeDtypeStruct((BATCH,), np.float32),
        "mean": jax.ShapeDtypeStruct((FEATURES,), np.float32),
    }
    batches = epoch(loader_of(ms.HostCallbackTransform(first, spec)))
    shapes = [jax.tree.map(np.shape, batch) for batch, _ in batches]
    whole = {"first": (BATCH,), "mean": (FEATURES,)}
    assert shapes == [whole, whole, {"first": (2,), "mean": (FEATURES,)}]


def test_a_declared_spec_is_checked_for_full_batches() -> None:
    spec = {"x": jax.ShapeDtypeStruct((BATCH, FEATURES), np.float32)}
    same = ms.MapTransform(lambda b, m: b, spec)
    assert [batch["x"].shape[0] for batch, _ in epoch(loader_of(same))] == [4, 4, 2]
    with pytest.raises(ValueError, match=r"MapTransform returned float32\[7, 4\]"):
        loader_of(ms.MapTransform(lambda b, m: {"x": b["x"].T}, spec))


def test_stages_before_and_after_batching() -> None:
    source = ms.ArraySampleSource({"x": rows()}, "sequential")
    loader = ms.DataLoader(
        [
            source,
            ms.MapTransform(lambda s, m: {"x": s["x"] + 1}),
            ms.BatchTransform(BATCH, remainder="partial"),
            ms.MapTransform(lambda b, m: {"features": b["x"].sum(0)}),
        ]
    )
    *_, (last, mask) = epoch(loader)
    assert mask.shape == (2,)
    np.testing.assert_allclose(last["features"], (rows()[8:] + 1).sum(0))
