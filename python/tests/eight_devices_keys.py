"""Random keys of `MapTransform` on eight devices. test_sharding.py runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
import worker_functions as fns
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import BATCH, N, data, mesh_of, sharding_of
from walks import iterated, jitted, same_walk, scanned


def draw(sample: Any, key: Any) -> Any:
    return {**sample, "drawn": jax.random.uniform(key, (4,))}


def draw_for_batch(batch: Any, mask: Any, key: Any) -> Any:
    drawn = jax.random.bits(key, (BATCH, 4))
    return {**batch, "drawn": batch["drawn"] + drawn % 7}


def stages(put: list[Any], remainder: str) -> list[Any]:
    batch = ms.BatchTransform(BATCH, remainder=remainder)
    return [ms.MapTransform(draw), batch, ms.MapTransform(draw_for_batch), *put]


def check_same(head: list[Any], put: Any, remainder: str, **more: Any) -> None:
    plain = ms.DataLoader([*head, *stages([], remainder)])
    loader = ms.DataLoader(
        [*head, *stages([ms.DevicePutTransform(put)], remainder)], **more
    )
    start = loader.init_state(7)
    steps = 2 * loader.steps_per_epoch
    expected = iterated(plain, plain.init_state(7), steps)
    for walk in (iterated, jitted, scanned):
        same_walk(walk(loader, start, steps), expected)
    batch, _ = next(loader.iterate(start))
    assert batch["drawn"].sharding.is_equivalent_to(put, 2)


@pytest.mark.parametrize(
    ("layout", "remainder", "traced"),
    [
        ("one axis", "wrap", True),
        ("three axes", "pad", True),
        ("three axes", "wrap", False),
        ("everywhere whole", "pad", False),
    ],
)
def test_keys_on_a_mesh(layout: str, remainder: str, traced: bool) -> None:
    head = [ms.ArraySampleSource(data())]
    check_same(head, sharding_of(layout), remainder, traced=traced)


def test_keys_of_files(tmp_path: Path) -> None:
    path = tmp_path / "samples.packed"
    ms.write_packed(ms.ArraySampleSource(data()), path)
    check_same([ms.PackedSource(path)], sharding_of("one axis"), "wrap")


def test_keys_of_workers() -> None:
    head = [ms.DiskSampleSource(N, fns.plain, workers=2)]
    check_same(head, sharding_of("one axis"), "wrap")


@pytest.mark.parametrize("first", [False, True])
def test_shardings_that_split_other_axes(first: bool) -> None:
    """The engine's fields for keys have one axis, also if a device was set before."""
    put = NamedSharding(mesh_of({"data": 4, "model": 2}), P("data", "model"))
    head = [ms.ArraySampleSource({"z": data()["z"]})]
    device = [ms.DevicePutTransform(jax.devices()[1])] if first else []
    check_same([*head, *device], put, "pad")


def test_keys_with_explicit_axes() -> None:
    put = NamedSharding(mesh_of({"data": 8}, AxisType.Explicit), P("data"))
    head = [ms.ArraySampleSource(data())]
    plain = ms.DataLoader([*head, ms.MapTransform(draw), ms.BatchTransform(BATCH)])
    batch, device = ms.BatchTransform(BATCH), ms.DevicePutTransform(put)
    loader = ms.DataLoader([*head, ms.MapTransform(draw), batch, device])
    start = loader.init_state(7)
    expected = iterated(plain, start, 5)
    for walk in (iterated, jitted, scanned):
        same_walk(walk(loader, start, 5), expected)


def test_host_fields_on_a_mesh() -> None:
    def named(index: int) -> Any:
        return {"x": np.float32(index), "name": str(index)}

    put = ms.DevicePutTransform(sharding_of("one axis"))
    head = ms.DiskSampleSource(N, named, workers=2)
    loader = ms.DataLoader([head, *stages([put], "pad")])
    plain = ms.DataLoader([head, *stages([], "pad")])
    pairs = zip(loader.run(seed=7, epochs=1), plain.run(seed=7, epochs=1), strict=True)
    for (found, _), (expected, _) in pairs:
        assert found["name"] == expected["name"]
        np.testing.assert_array_equal(found["drawn"], expected["drawn"])
