"""Batches whose arrays have different shardings. test_sharding.py runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
import worker_functions as fns
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import (
    BATCH,
    SIZES,
    STEPS,
    N,
    loader_of,
    mesh_of,
    plain_of,
    rows,
    samples,
    shardings,
)
from walks import Walk, iterated, jitted, same_bytes, same_walk, scanned, stepped

WALKS = [iterated, stepped, jitted, scanned]


def check_layout(value: Any, wanted: Any) -> None:
    """Fails unless each array has its sharding, in the same memory."""
    each = jax.tree.leaves(jax.tree.broadcast(wanted, value))
    for leaf, sharding in zip(jax.tree.leaves(value), each, strict=True):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim), leaf.sharding
        assert leaf.sharding.memory_kind == sharding.memory_kind


def check_same(
    stages: list[Any],
    wanted: Any,
    walks: list[Callable[..., Walk]] = WALKS,
    **more: Any,
) -> ms.DataLoader:
    """Checks that all ways of delivery give the batches of one device, split."""
    plain = ms.DataLoader(stages)
    loader = ms.DataLoader([*stages, ms.DevicePutTransform(wanted)], **more)
    start = loader.init_state(7)
    steps = 2 * loader.steps_per_epoch
    expected = iterated(plain, plain.init_state(7), steps)
    for walk in walks:
        same_walk(walk(loader, start, steps), expected)
    for batch, mask in loader.iterate(start, steps=steps):
        check_layout(batch, wanted)
        check_layout(mask, rows())
    batch, _, mask = jax.jit(loader.next_batch)(start)
    check_layout(batch, wanted)
    check_layout(mask, rows())
    return loader


@pytest.fixture(params=["memory", "disk"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    memory = ms.ArraySampleSource(samples())
    if request.param == "memory":
        return memory
    ms.write_packed(memory, tmp_path / "samples.packed")
    return ms.PackedSource(tmp_path / "samples.packed")


@pytest.mark.parametrize("remainder", ["pad", "drop", "wrap"])
def test_each_array_has_its_sharding(source: Any, remainder: str) -> None:
    stages = [source, ms.BatchTransform(BATCH, remainder=remainder)]
    loader = check_same(stages, shardings())
    batch, mask = next(loader.iterate(loader.init_state(7)))
    assert {key: leaf.sharding for key, leaf in batch.items()} == shardings()
    assert mask.sharding == rows()
    assert "label: P('data',), tokens: P('data', 'model')" in loader.explain()


def test_each_row_is_read_once(source: Any) -> None:
    loader = loader_of(source, shardings(), prefetch=0)
    iterated(loader, loader.init_state(7), STEPS)
    assert loader.bytes_read == N * sum(x[0].nbytes for x in samples().values())


def test_arrays_of_a_scan_have_their_shardings(source: Any) -> None:
    """With explicit axes, the sharding of an array is a part of its type."""
    loader = loader_of(source, shardings(kind=AxisType.Explicit))
    found = []

    def note(carry: Any, batch: Any, mask: Any) -> Any:
        spec = lambda x: jax.typeof(x).sharding.spec  # noqa: E731
        found.append((jax.tree.map(spec, batch), spec(mask)))
        return carry, (batch, mask)

    plain = plain_of(source)
    expected = iterated(plain, plain.init_state(7), STEPS)
    start = loader.init_state(7)
    same_walk(iterated(loader, start, STEPS), expected)
    with jax.set_mesh(mesh_of(SIZES, AxisType.Explicit)):
        same_walk(jitted(loader, start, STEPS), expected)
        _, _, kept = loader.scan_epoch(start, 0, note)
    same_bytes(kept, expected[:2])
    wanted = {"tokens": P("data", "model"), "label": P("data")}
    assert found
    assert all(specs == (wanted, P("data")) for specs in found)


def nested(i: int) -> dict[str, Any]:
    wide = np.arange(8, dtype=np.float32) + i
    return {"a": (wide, [wide[:4] * 2, None]), "b": fns.Pair(wide.reshape(2, 4), i)}


ONE, TWO = P("data"), P("data", "model")
PREFIXES: dict[str, Any] = {
    "one sharding": ONE,
    "one for each key": {"a": TWO, "b": ONE},
    "a tuple": {"a": (TWO, ONE), "b": ONE},
    "the whole structure": {
        "a": (TWO, [ONE, None]),
        "b": fns.Pair(P("data", None, "model"), ONE),
    },
}


@pytest.mark.parametrize("name", PREFIXES)
def test_prefixes_of_nested_batches(name: str) -> None:
    stages = [ms.DiskSampleSource(N, nested), ms.BatchTransform(BATCH)]
    check_same(stages, shardings(PREFIXES[name]), [iterated, jitted])


def test_a_batch_that_is_a_tuple() -> None:
    arrays = (samples()["tokens"], samples()["label"])
    stages = [ms.ArraySampleSource(arrays), ms.BatchTransform(BATCH)]
    check_same(stages, shardings((P("data", "model"), P("data"))))


def test_entries_that_name_the_same_axis() -> None:
    specs = {"tokens": P(("data",), "model"), "label": P("data")}
    loader_of(ms.ArraySampleSource(samples()), shardings(specs))
    whole = {"tokens": P(None, "model"), "label": P()}
    loader = loader_of(ms.ArraySampleSource(samples()), shardings(whole))
    batch, mask = next(loader.iterate(loader.init_state(7)))
    check_layout(batch, shardings(whole))
    assert mask.is_fully_replicated


def test_rows_over_several_axes(source: Any) -> None:
    mesh = mesh_of({"replica": 2, "data": 2, "model": 2})
    axes = ("replica", "data")
    wanted = {
        "tokens": NamedSharding(mesh, P(axes, "model")),
        "label": NamedSharding(mesh, P(axes)),
    }
    plain, loader = plain_of(source), loader_of(source, wanted)
    expected = iterated(plain, plain.init_state(7), STEPS)
    for walk in WALKS:
        same_walk(walk(loader, loader.init_state(7), STEPS), expected)
    batch, mask = next(loader.iterate(loader.init_state(7)))
    check_layout(batch, wanted)
    check_layout(mask, NamedSharding(mesh, P(axes)))


def wider(x: Any, mask: Any) -> Any:
    pair = jnp.stack([x["label"]] * 4, -1)
    return {"pair": pair, "twice": x["tokens"] * 2}


@pytest.mark.parametrize("before_batching", [False, True])
def test_after_a_traced_stage(source: Any, before_batching: bool) -> None:
    """The structure is that of the value after the stage."""
    stages = [source, ms.MapTransform(wider), ms.BatchTransform(BATCH)]
    if not before_batching:
        stages[1:] = reversed(stages[1:])
    check_same(stages, shardings({"pair": P("data", "model"), "twice": P("data")}))


def test_before_a_traced_stage(source: Any) -> None:
    """The stage gets the sharded arrays and may return others."""
    plain = ms.DataLoader([source, ms.BatchTransform(BATCH), ms.MapTransform(wider)])
    put = ms.DevicePutTransform(shardings())
    stages = [source, ms.BatchTransform(BATCH), put, ms.MapTransform(wider)]
    loader = ms.DataLoader(stages)
    expected = iterated(plain, plain.init_state(7), STEPS)
    for walk in WALKS:
        same_walk(walk(loader, loader.init_state(7), STEPS), expected)


def test_the_last_stage_decides(source: Any) -> None:
    """The structures before and after the traced stage differ."""
    put = ms.DevicePutTransform(shardings())
    stages = [source, ms.BatchTransform(BATCH), put, ms.MapTransform(wider)]
    check_same(stages, shardings({"pair": P("data", "model"), "twice": P("data")}))
    check_same([*stages[:2], ms.DevicePutTransform(rows())], shardings())


def test_native_stages_after_it(source: Any) -> None:
    after = [ms.CastTransform("tokens", jnp.float32), ms.FlattenTransform("tokens")]
    plain = ms.DataLoader([source, ms.BatchTransform(BATCH), *after])
    put = ms.DevicePutTransform(shardings())
    loader = ms.DataLoader([source, ms.BatchTransform(BATCH), put, *after])
    expected = iterated(plain, plain.init_state(7), STEPS)
    for walk in (iterated, jitted):
        same_walk(walk(loader, loader.init_state(7), STEPS), expected)
    check_layout(next(loader.iterate(loader.init_state(7)))[0], shardings())


def test_after_a_callback(source: Any) -> None:
    def changed(batch: Any, mask: np.ndarray) -> Any:
        return {**batch, "label": batch["label"] + 1}

    callback = ms.HostCallbackTransform(changed)
    check_same([source, ms.BatchTransform(BATCH), callback], shardings())


def test_a_traced_gather() -> None:
    stages = [ms.ArraySampleSource(samples()), ms.BatchTransform(BATCH)]
    check_same(stages, shardings(), traced=True)


@pytest.mark.parametrize("traced", [False, True])
def test_host_fields_need_no_sharding(traced: bool) -> None:
    source = ms.DiskSampleSource(N, fns.with_host_fields, workers=2)
    mapped = [ms.MapTransform(lambda x, mask: {**x, "y": x["y"] * 2})] if traced else []
    stages = [source, ms.BatchTransform(BATCH), *mapped]
    wanted = shardings({"x": P("data"), "y": P("data")})
    plain = ms.DataLoader(stages)
    loader = ms.DataLoader([*stages, ms.DevicePutTransform(wanted)])
    pairs = zip(
        loader.iterate(loader.init_state(7)),
        plain.iterate(plain.init_state(7)),
        strict=True,
    )
    for (batch, _), (expected, _) in pairs:
        assert batch["path"] == expected["path"]
        arrays = {key: batch[key] for key in wanted}
        same_bytes(arrays, {key: expected[key] for key in wanted})
        check_layout(arrays, wanted)
    put = ms.DevicePutTransform({**wanted, "path": wanted["x"]})
    with pytest.raises(ValueError, match=r"the batch has no array \['path'\]"):
        ms.DataLoader([*stages, put])


def test_memory_kinds(source: Any) -> None:
    wanted = shardings()
    wanted["tokens"] = wanted["tokens"].with_memory_kind("pinned_host")
    loader = check_same([source, ms.BatchTransform(BATCH)], wanted)
    _, _, kept = loader.scan_epoch(
        loader.init_state(7), 0, lambda carry, batch, mask: (carry, batch)
    )
    assert kept["tokens"].sharding.memory_kind == "pinned_host"
    assert kept["label"].sharding.memory_kind != "pinned_host"


def test_seeds_are_vmapped(source: Any) -> None:
    plain, loader = plain_of(source), loader_of(source, shardings())
    states = jax.vmap(loader.init_state)(jnp.arange(3))
    batches, _, masks = jax.jit(jax.vmap(loader.next_batch))(states)
    for seed in range(3):
        batch, _, mask = plain.next_batch(plain.init_state(seed))
        same_bytes(
            jax.tree.map(lambda x, k=seed: x[k], (batches, masks)), (batch, mask)
        )


def test_the_stage_keeps_a_copy() -> None:
    given = shardings()
    put = ms.DevicePutTransform(given)
    given["label"] = None
    assert put.sharding == shardings()
    assert put == ms.DevicePutTransform(shardings())
    assert put != ms.DevicePutTransform(rows())
