"""Packed sequences on eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from jax.sharding import AxisType
from meshes import BATCH, STEPS, N, sharding_of
from walks import iterated, same_walk, scanned, stepped

LAYOUTS = ["one axis", "replicas across a model axis", "everywhere whole"]


def pipeline_of(*stages: Any) -> list[Any]:
    context = np.arange(N * 3 * 2, dtype=np.float32).reshape(N, 3, 2)
    source = ms.ArraySampleSource({"context": context})
    return [source, ms.BatchTransform(BATCH), *stages]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_batches_are_those_of_one_device(layout: str, kind: AxisType) -> None:
    packed = ms.TimeSeriesBatchTransform(mode="packed")
    sharding = sharding_of(layout, kind)
    put = ms.DevicePutTransform(sharding)
    plain = ms.DataLoader(pipeline_of(packed))
    state = plain.init_state(7)
    expected = iterated(plain, state, STEPS)
    for stages in ([packed, put], [put, packed]):
        loader = ms.DataLoader(pipeline_of(*stages))
        same_walk(iterated(loader, state, STEPS), expected)
        same_walk(stepped(loader, state, STEPS, jax.jit(loader.next_batch)), expected)
        same_walk(scanned(loader, state, STEPS), expected)
        batch, mask = next(loader.iterate(state))
        assert mask.sharding.is_equivalent_to(sharding, 1)
        assert batch["context"].sharding.is_equivalent_to(sharding, 2)
