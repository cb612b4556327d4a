"""Python functions on eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
import worker_functions as fns
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import BATCH, STEPS, N, data, mesh_of, sharding_of
from walks import iterated, jitted, same_walk, scanned


def stages_of(kind: str) -> list[Any]:
    """Returns a source and the stages before batching."""
    if kind == "a data set":
        return [ms.DatasetSource(fns.Data(N), workers=2)]
    name, _, where = kind.partition(" in a ")
    if name == "samples":
        return [ms.DiskSampleSource(N, fns.plain, workers=2, worker_kind=where)]
    stage = ms.PythonMapTransform(fns.doubled, workers=2, worker_kind=where)
    return [ms.ArraySampleSource(data()), stage]


def check_same(before: list[Any], put: NamedSharding, after: list[Any]) -> None:
    plain = ms.DataLoader([*before, ms.BatchTransform(BATCH), *after])
    batch = ms.BatchTransform(BATCH)
    loader = ms.DataLoader([*before, batch, *after, ms.DevicePutTransform(put)])
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), 2 * STEPS)
    for walk in (iterated, jitted, scanned):
        same_walk(walk(loader, start, 2 * STEPS), expected)
    found, mask = next(loader.iterate(start))
    for leaf in (*found.values(), mask):
        assert leaf.sharding.is_equivalent_to(put, leaf.ndim)


def twice(batch: Any, mask: Any) -> Any:
    return {**batch, "x": batch["x"] * 2}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        "samples in a thread",
        "samples in a process",
        "a map in a thread",
        "a map in a process",
        "a data set",
    ],
)
def test_every_kind_of_worker(kind: str, traced: bool) -> None:
    after = [ms.MapTransform(twice)] if traced else []
    check_same(stages_of(kind), sharding_of("three axes"), after)


@pytest.mark.parametrize(
    ("where", "axes"), [("thread", AxisType.Explicit), ("process", AxisType.Auto)]
)
@pytest.mark.parametrize("traced", ["nowhere", "before batching", "after batching"])
def test_host_fields_come_with_every_sharding(
    where: str, axes: AxisType, traced: str
) -> None:
    """Including a sharding that splits an axis that only a traced stage creates."""

    def wider(x: Any, mask: Any) -> Any:
        return {"x": x["x"] * 2, "y": jnp.stack([x["y"], x["y"]], -1)}

    mapped = {"before batching": [wider, None], "after batching": [None, wider]}
    stages = [
        ms.DiskSampleSource(N, fns.with_host_fields, workers=2, worker_kind=where)
    ]
    stages.append(ms.BatchTransform(BATCH))
    for place, function in enumerate(mapped.get(traced, [])):
        if function is not None:
            stages.insert(1 + place, ms.MapTransform(function))
    mesh = mesh_of({"data": 4, "model": 2}, axes)
    spec = P("data") if traced == "nowhere" else P("data", "model")
    put = ms.DevicePutTransform(NamedSharding(mesh, spec))
    plain, loader = ms.DataLoader(stages), ms.DataLoader([*stages, put])
    pairs = zip(
        loader.iterate(loader.init_state(7)),
        plain.iterate(plain.init_state(7)),
        strict=True,
    )
    for (batch, mask), (wanted, valid) in pairs:
        assert list(batch) == list(wanted)
        for key in ("path", "words", "object"):
            assert batch[key] == wanted[key]
        for key in ("x", "y"):
            assert np.array_equal(batch[key], wanted[key])
            assert batch[key].sharding.is_equivalent_to(put.sharding, batch[key].ndim)
        assert np.array_equal(mask, valid)


@pytest.mark.parametrize("traced", [False, True])
def test_skipped_samples(traced: bool) -> None:
    spec = jax.eval_shape(lambda: {"x": jnp.zeros(2)})

    def odd(i: int) -> dict[str, Any]:
        if i in (3, 17, 60):
            raise ValueError(f"sample {i} is broken")
        return {"x": np.full(2, i, np.float32)}

    after = [ms.MapTransform(twice)] if traced else []
    walks = []
    for put in ([], [ms.DevicePutTransform(sharding_of("three axes"))]):
        source = ms.DiskSampleSource(N, odd, spec)
        stages = [source, ms.BatchTransform(BATCH), *after, *put]
        loader = ms.DataLoader(stages, on_error="skip")
        start = loader.init_state(7)
        walks += [walk(loader, start, STEPS) for walk in (iterated, jitted)]
        assert sorted(loader.skipped) == [3, 17, 60]
    for found in walks[1:]:
        same_walk(found, walks[0])
    assert int(walks[0][1].sum()) == N - 3
