"""Batches of streams on eight devices. test_sharding.py runs it."""

from __future__ import annotations

from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from conftest import fails
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import mesh_of
from stream_sources import Count
from walks import iterated, jitted, same_walk, scanned

BUFFER = ms.BufferTransform(12, 4, 1, "shuffled")


@pytest.mark.parametrize("sizes", [{"data": 8}, {"data": 4, "model": 2}])
def test_batches_are_split_in_the_loop_and_inside_jit(sizes: dict[str, int]) -> None:
    sharding = NamedSharding(mesh_of(sizes), P("data"))
    stages: list[Any] = [Count(20, holes=True), BUFFER, ms.BatchTransform(8)]
    plain = ms.DataLoader(stages)
    split = ms.DataLoader([*stages, ms.DevicePutTransform(sharding)])
    expected = iterated(plain, plain.init_state(3), 6)
    start = split.init_state(3)
    for walk in (iterated, jitted, scanned):
        same_walk(walk(split, start, 6), expected)
    run = split.run(seed=3, epochs=2)
    batch, mask = next(run)
    assert batch["x"].sharding.is_equivalent_to(sharding, 2)
    assert mask.sharding.is_equivalent_to(sharding, 1)
    kept = run.state
    rest = [np.asarray(b["n"]) for b, _ in run]
    restored = split.restore(split.save(kept))
    again = [np.asarray(b["n"]) for b, _ in split.run(restored, epochs=2)]
    assert np.array_equal(rest, again)


def test_a_pytree_of_shardings() -> None:
    mesh = mesh_of({"data": 4, "model": 2})
    shardings = {
        "n": NamedSharding(mesh, P("data")),
        "x": NamedSharding(mesh, P("data", None)),
    }
    stages: list[Any] = [Count(16), ms.BatchTransform(8)]
    loader = ms.DataLoader([*stages, ms.DevicePutTransform(shardings)])
    batch, _ = next(loader.run())
    assert batch["x"].sharding.is_equivalent_to(shardings["x"], 2)


def test_another_device() -> None:
    device = jax.devices()[3]
    stages: list[Any] = [Count(16), ms.BatchTransform(8)]
    loader = ms.DataLoader([*stages, ms.DevicePutTransform(device)])
    batch, mask = next(loader.run())
    assert batch["x"].devices() == mask.devices() == {device}


def test_batches_that_cannot_be_split() -> None:
    put = ms.DevicePutTransform(NamedSharding(mesh_of({"data": 8}), P("data")))
    few = [Count(16), ms.BatchTransform(6), put]
    fails(lambda: ms.DataLoader(few), "multiple of 8", kind=ValueError)
    fails(lambda: ms.DataLoader([Count(16), put]), "BatchTransform", kind=ValueError)
