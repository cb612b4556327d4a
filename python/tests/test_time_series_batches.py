"""TimeSeriesBatchTransform: sequences as (B, T, F), or packed as (B * T, F)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import fails
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    HostCallbackTransform,
    MapTransform,
    TimeSeriesBatchTransform,
)
from walks import iterated, jitted, same_bytes, same_walk, scanned, stepped

N, BATCH, STEPS = 5, 2, 3
CONTEXT = np.arange(N * 3 * 2 * 2, dtype=np.float32).reshape(N, 3, 2, 2)
TARGET = np.arange(N, dtype=np.int32)


def loader_of(
    *stages: Any, context: np.ndarray = CONTEXT, remainder: str = "pad", **knobs: Any
) -> DataLoader:
    arrays = {"context": context, "target": TARGET}
    source = ArraySampleSource(arrays, "sequential")
    batches = BatchTransform(BATCH, remainder=remainder)
    return DataLoader([source, batches, *stages], **knobs)


def last_batch(loader: DataLoader) -> tuple[Any, Any]:
    batches = list(loader.run(seed=0, epochs=1))
    return jax.tree.map(np.asarray, batches[-1])


def test_batched_joins_the_features() -> None:
    loader = loader_of(TimeSeriesBatchTransform())
    assert loader.element_spec()["context"].shape == (2, 3, 4)
    batch, mask = last_batch(loader)
    assert sorted(batch) == ["context", "target"]
    wanted = [
        [[48, 49, 50, 51], [52, 53, 54, 55], [56, 57, 58, 59]],
        [[0, 0, 0, 0]] * 3,
    ]
    same_bytes(batch["context"], np.array(wanted, np.float32))
    assert mask.tolist() == [True, False]


def test_packed_has_one_row_per_time_step() -> None:
    loader = loader_of(TimeSeriesBatchTransform(mode="packed"))
    spec = loader.element_spec()
    assert spec["context"].shape == (6, 4)
    assert (spec["sequence_start"].shape, spec["sequence_start"].dtype) == ((6,), bool)
    first, mask = jax.tree.map(np.asarray, next(loader.run(seed=0)))
    same_bytes(first["context"], np.arange(24, dtype=np.float32).reshape(6, 4))
    assert first["sequence_start"].tolist() == [True, False, False] * 2
    assert mask.tolist() == [True] * 6
    batch, mask = last_batch(loader)
    wanted = [[48, 49, 50, 51], [52, 53, 54, 55], [56, 57, 58, 59], *[[0] * 4] * 3]
    same_bytes(batch["context"], np.array(wanted, np.float32))
    assert mask.tolist() == [True] * 3 + [False] * 3
    assert batch["sequence_start"].tolist() == [True] + [False] * 5
    assert batch["target"].tolist() == [4, 0]  # has one row per sequence


@pytest.mark.parametrize(
    ("mode", "shape"), [("batched", (2, 3, 1)), ("packed", (6, 1))]
)
def test_sequences_without_features_get_one(mode: str, shape: Any) -> None:
    stage = TimeSeriesBatchTransform(mode=mode, sequence_start_key="new")
    loader = loader_of(stage, context=CONTEXT[:, :, 0, 0])
    batch, _ = next(loader.run(seed=0))
    same_bytes(batch["context"], CONTEXT[:2, :, 0, 0].reshape(shape))
    assert ("new" in batch) == (mode == "packed")


@pytest.mark.parametrize("knobs", [{}, {"traced": True}, {"threads": 4, "prefetch": 5}])
def test_every_way_of_delivery_has_the_longer_mask(knobs: dict[str, Any]) -> None:
    def counted(value: Any, mask: Any) -> Any:
        return {**value, "rows": jnp.where(mask, 1.0, 0.0)}

    seen: list[int] = []
    loader = loader_of(
        TimeSeriesBatchTransform(mode="packed"),
        MapTransform(counted),
        HostCallbackTransform(lambda value, mask: seen.append(len(mask))),
        **knobs,
    )
    state = loader.init_state(0)
    walk = iterated(loader, state, STEPS)
    assert walk[1].shape == (STEPS, 6)
    np.testing.assert_array_equal(walk[0]["rows"], walk[1].astype(np.float32))
    for way in (stepped, jitted, scanned):
        same_walk(way(loader, state, STEPS), walk)
    states = jax.vmap(loader.init_state)(np.arange(2))
    _, _, masks = jax.jit(jax.vmap(loader.next_batch))(states)
    assert masks.shape == (2, 6)
    for step in range(STEPS):  # resumed at each step
        rest = jax.tree.map(lambda x, step=step: x[step:], walk)
        same_walk(iterated(loader, state, STEPS - step), rest)
        _, state, _ = loader.next_batch(state)
    assert set(seen) == {6}


def test_a_partial_batch_is_packed_without_padding() -> None:
    spec = {"context": jax.ShapeDtypeStruct((6, 4), np.float32)}

    def negated(value: Any, mask: Any) -> Any:
        return {"context": -value["context"]}

    for stages in ([], [HostCallbackTransform(negated, spec)]):
        packed = TimeSeriesBatchTransform(mode="packed")
        loader = loader_of(packed, *stages, remainder="partial")
        batch, mask = last_batch(loader)
        assert mask.tolist() == [True] * 3
        sign = -1 if stages else 1
        same_bytes(batch["context"], sign * CONTEXT[4].reshape(3, 4))


def test_bad_input_is_an_error_when_the_pipeline_is_built() -> None:
    name = "TimeSeriesBatchTransform"
    fails(
        lambda: TimeSeriesBatchTransform(mode="flat"),
        f"{name}: mode must be one of ('batched', 'packed'), not 'flat'",
        kind=ValueError,
    )
    fails(
        lambda: TimeSeriesBatchTransform("x", sequence_start_key="x"),
        f"{name}: sequence_key and sequence_start_key are both 'x'",
        kind=ValueError,
    )
    fails(
        lambda: loader_of(TimeSeriesBatchTransform("series")),
        f"{name}: unknown key 'series': expected one of ['context', 'target']",
        kind=KeyError,
    )
    fails(
        lambda: loader_of(TimeSeriesBatchTransform("target")),
        f"{name}: 'target' needs a batch axis and a time axis",
        "a batch has int32[2]",
        kind=ValueError,
    )
    plain = ArraySampleSource(CONTEXT)
    stages = [BatchTransform(BATCH), TimeSeriesBatchTransform()]
    fails(lambda: DataLoader([plain, *stages]), f"{name} needs samples that are dicts")
    nested = ArraySampleSource({"context": {"a": CONTEXT}})
    fails(lambda: DataLoader([nested, *stages]), f"{name}: 'context' is a dict")
    early = [ArraySampleSource({"context": CONTEXT}), *stages[::-1]]
    fails(
        lambda: DataLoader(early),
        f"stage 1, {name}, needs batches. Put it after BatchTransform.",
        kind=ValueError,
    )
    packed = TimeSeriesBatchTransform(mode="packed")
    again = TimeSeriesBatchTransform("target")
    rows = MapTransform(lambda v, m: {**v, "target": jnp.zeros((2, 3))})
    fails(
        lambda: loader_of(packed, rows, again),
        "'target' has 2 rows, but the mask has the shape [6]",
        kind=ValueError,
    )
