"""Batches over the devices of a mesh; run by test_sharding.py in a process of eight."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import rows_of
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from millstream import _jit
from walks import iterated, jitted, same_bytes, same_walk, scanned, stepped

N, BATCH = 61, 16
STEPS = 4
"""Steps of an epoch; the last batch has 13 samples."""

LAYOUTS: dict[str, tuple[dict[str, int], P]] = {
    "one axis": ({"data": 8}, P("data")),
    "replicas across a model axis": ({"data": 4, "model": 2}, P("data")),
    "two axes": ({"replica": 2, "data": 4}, P(("replica", "data"))),
    "two axes, the other way round": (
        {"replica": 2, "data": 4},
        P(("data", "replica")),
    ),
    "three axes": (
        {"replica": 2, "data": 2, "model": 2},
        P(("replica", "data")),
    ),
    "the last axis": ({"model": 4, "data": 2}, P("data")),
    "everywhere whole": ({"data": 8}, P()),
    "one device": ({"data": 1}, P("data")),
}


def data() -> dict[str, np.ndarray]:
    z = np.arange(N * 8, dtype=np.float32).reshape(N, 2, 4) / 7
    return {**rows_of(N), "z": z}


def mesh_of(sizes: dict[str, int], kind: AxisType = AxisType.Auto) -> Mesh:
    count = int(np.prod(list(sizes.values())))
    devices = np.array(jax.devices()[:count]).reshape(*sizes.values())
    return Mesh(devices, tuple(sizes), axis_types=(kind,) * len(sizes))


def sharding_of(layout: str, kind: AxisType = AxisType.Auto) -> NamedSharding:
    sizes, spec = LAYOUTS[layout]
    return NamedSharding(mesh_of(sizes, kind), spec)


def loader_of(source: Any, sharding: Any, **more: Any) -> ms.DataLoader:
    stages = [source, ms.BatchTransform(BATCH), ms.DevicePutTransform(sharding)]
    return ms.DataLoader(stages, **more)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "samples.packed"
    ms.write_packed(ms.ArraySampleSource(data()), path)
    return path


@pytest.fixture(scope="module")
def sources(packed: Path) -> dict[str, Callable[[], Any]]:
    def mixture() -> Any:
        some = {key: x[:40] for key, x in data().items()}
        others = {key: x[40:] for key, x in data().items()}
        parts = [ms.ArraySampleSource(some), ms.ArraySampleSource(others)]
        return ms.mix(parts, weights=[2, 1], num_samples=N)

    return {
        "memory": lambda: ms.ArraySampleSource(data()),
        "disk": lambda: ms.PackedSource(packed),
        "mixture": mixture,
    }


@pytest.fixture(params=["memory", "disk", "mixture"])
def source(request: pytest.FixtureRequest, sources: Any) -> Any:
    return sources[request.param]()


@pytest.fixture
def disk(sources: Any) -> Any:
    return sources["disk"]()


def plain_of(source: Any) -> ms.DataLoader:
    return ms.DataLoader([source, ms.BatchTransform(BATCH)])


def check_layout(walk: Any, sharding: NamedSharding) -> None:
    for leaf in jax.tree.leaves(walk):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim), leaf.sharding


def check_same(source: Any, sharding: NamedSharding) -> None:
    """All ways through a sharded loader give the bytes of one device, split."""
    plain, loader = plain_of(source), loader_of(source, sharding)
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), 2 * STEPS)
    same_walk(iterated(loader, start, 2 * STEPS), expected)
    same_walk(scanned(loader, start, 2 * STEPS), expected)
    batch, mask = next(loader.iterate(start))
    assert {leaf.sharding for leaf in batch.values()} == {sharding}
    assert mask.sharding == sharding
    step = jax.jit(loader.next_batch)
    same_walk(stepped(loader, start, 2 * STEPS, step), expected)
    batch, after, mask = step(start)
    check_layout((batch, mask), sharding)
    # From the middle of an epoch, whoever made the state.
    for state in (after, plain.next_batch(plain.init_state(7))[1]):
        rest = jax.tree.map(lambda x: x[1:], expected)
        same_walk(iterated(loader, state, 2 * STEPS - 1), rest)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_batches_of_one_device(layout: str, disk: Any) -> None:
    check_same(disk, sharding_of(layout))


def test_every_source_gives_the_batches_of_one_device(source: Any) -> None:
    check_same(source, sharding_of("three axes"))


@pytest.mark.parametrize("layout", ["three axes", "one axis"])
def test_meshes_of_explicit_axes(layout: str, disk: Any) -> None:
    sharding = sharding_of(layout, AxisType.Explicit)
    plain, loader = plain_of(disk), loader_of(disk, sharding)
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), 2 * STEPS)
    same_walk(iterated(loader, start, 2 * STEPS), expected)
    with jax.set_mesh(sharding.mesh):
        same_walk(jitted(loader, start, 2 * STEPS), expected)
        same_walk(scanned(loader, start, 2 * STEPS), expected)


def test_other_axes_are_split_too() -> None:
    mesh = mesh_of({"data": 4, "model": 2})
    arrays = {"z": data()["z"]}
    plain = plain_of(ms.ArraySampleSource(arrays))
    expected = iterated(plain, plain.init_state(7), STEPS)
    for spec in (P("data", "model"), P("data", None, "model"), P(None, "model")):
        sharding = NamedSharding(mesh, spec)
        loader = loader_of(ms.ArraySampleSource(arrays), sharding)
        start = loader.init_state(7)
        same_walk(iterated(loader, start, STEPS), expected)
        same_walk(jitted(loader, start, STEPS), expected)
        batch, mask = next(loader.iterate(start))
        assert batch["z"].sharding == sharding
        assert mask.sharding == NamedSharding(mesh, P(spec[0]))
        check_layout(jax.jit(loader.next_batch)(start)[0], sharding)


def test_regions_are_aligned_and_shared_by_replicas(source: Any) -> None:
    loader = loader_of(source, sharding_of("replicas across a model axis"))
    for batch, _ in loader.iterate(loader.init_state(7)):
        for leaf in batch.values():
            places: dict[Any, set[int]] = {}
            for shard in leaf.addressable_shards:
                pointer = shard.data.unsafe_buffer_pointer()
                assert pointer % 64 == 0
                places.setdefault(shard.index[0].start, set()).add(pointer)
            # Two devices hold each row, and there is one copy: it was aliased.
            assert [len(found) for found in places.values()] == [1] * 4


@pytest.mark.parametrize("layout", ["three axes", "everywhere whole"])
def test_each_row_is_read_once(layout: str, source: Any) -> None:
    for walk in (iterated, jitted):
        loader = loader_of(source, sharding_of(layout), prefetch=0)
        walk(loader, loader.init_state(7), STEPS)
        resident_in_jit = loader._program.resident and walk is not iterated
        copies = loader._program.split.devices // len(loader._program.split.parts)
        row = sum(x[0].nbytes for x in data().values())
        # In memory, inside of jit, every device gathers its rows from there.
        assert loader.bytes_read == N * row * (copies if resident_in_jit else 1)


def test_stages_that_are_traced_see_sharded_batches(packed: Path) -> None:
    sharding = sharding_of("three axes")

    def stages(put: list[Any]) -> list[Any]:
        return [
            ms.PackedSource(packed),
            ms.MapTransform(lambda x, mask: {**x, "sum": x["z"].sum()}),
            ms.BatchTransform(BATCH),
            ms.MapTransform(lambda x, mask: {**x, "twice": x["x"] * 2}),
            *put,
        ]

    plain = ms.DataLoader(stages([]))
    loader = ms.DataLoader(stages([ms.DevicePutTransform(sharding)]))
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), STEPS)
    same_walk(iterated(loader, start, STEPS), expected)
    same_walk(jitted(loader, start, STEPS), expected)
    same_walk(scanned(loader, start, STEPS), expected)
    batch, mask = next(loader.iterate(start))
    check_layout((batch, mask), sharding)


def test_callbacks_see_whole_batches(packed: Path) -> None:
    seen = []

    def note(batch: Any, mask: np.ndarray) -> Any:
        seen.append(batch["y"].copy())
        return {**batch, "y": batch["y"] + 1}

    sharding = sharding_of("two axes")
    plain = plain_of(ms.PackedSource(packed))
    stages = [
        ms.PackedSource(packed),
        ms.BatchTransform(BATCH),
        ms.DevicePutTransform(sharding),
        ms.HostCallbackTransform(note),
    ]
    loader = ms.DataLoader(stages)
    expected, _, _ = iterated(plain, plain.init_state(7), STEPS)
    found, _, _ = iterated(loader, loader.init_state(7), STEPS)
    same_bytes(np.stack(seen), expected["y"])
    same_bytes(found["y"], expected["y"] + 1)
    batch, _ = next(loader.iterate(loader.init_state(7)))
    check_layout(batch, sharding)


def test_a_traced_gather_is_sharded_too() -> None:
    sharding = sharding_of("three axes")
    source = ms.ArraySampleSource(data(), "sequential")
    plain, loader = plain_of(source), loader_of(source, sharding, traced=True)
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), STEPS)
    same_walk(iterated(loader, start, STEPS), expected)
    check_layout(jax.jit(loader.next_batch)(start)[0], sharding)


def test_a_call_back_to_the_host_gives_the_same_shards(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = plain_of(source)
    expected = iterated(plain, plain.init_state(7), STEPS)
    monkeypatch.setattr(_jit, "_foreign_shard", _jit._host_shard)
    for layout in ("three axes", "one axis"):
        loader = loader_of(source, sharding_of(layout), prefetch=0)
        same_walk(jitted(loader, loader.init_state(7), STEPS), expected)
        # All devices of the process are given parts of one batch.
        assert loader.bytes_read == N * sum(x[0].nbytes for x in data().values())


def test_transfers_ahead_change_nothing(source: Any) -> None:
    plain, loader = plain_of(source), loader_of(source, sharding_of("two axes"))
    loader._door.transfers = True  # as on an accelerator
    expected = iterated(plain, plain.init_state(7), 3 * STEPS)
    same_walk(iterated(loader, loader.init_state(7), 3 * STEPS), expected)
    iterator = loader.iterate(loader.init_state(7), steps=3 * STEPS)
    for _ in range(3):
        next(iterator)
    kept = iterator.get_state()
    next(iterator)
    iterator.set_state(kept)
    batch, _ = next(iterator)
    same_bytes(batch, jax.tree.map(lambda x: x[3], expected[0]))


def test_seeds_are_vmapped(disk: Any) -> None:
    plain, loader = plain_of(disk), loader_of(disk, sharding_of("three axes"))
    states = jax.vmap(loader.init_state)(jnp.arange(3))
    batches, after, masks = jax.jit(jax.vmap(loader.next_batch))(states)
    for seed in range(3):
        batch, state, mask = plain.next_batch(plain.init_state(seed))
        same_bytes(jax.tree.map(lambda x, k=seed: x[k], batches), batch)
        same_bytes(masks[seed], mask)
        same_bytes(after.words[seed], state.words)


def test_a_model_with_shardings_of_its_own(disk: Any) -> None:
    mesh = mesh_of({"data": 4, "model": 2})
    split = NamedSharding(mesh, P("model", None))

    def update(w: Any, batch: Any, mask: Any) -> Any:
        def loss(w: Any) -> Any:
            hidden = batch["z"].reshape(BATCH, 8) @ w
            hidden = jax.lax.with_sharding_constraint(
                hidden, NamedSharding(mesh, P("data", "model"))
            )
            error = (hidden.sum(1) - batch["y"]) ** 2
            return jnp.where(mask, error, 0).sum() / mask.sum()

        value, slope = jax.value_and_grad(loss)(w)
        return w - 1e-6 * slope, value

    def plain_update(w: Any, batch: Any, mask: Any) -> Any:
        error = lambda w: (batch["z"].reshape(BATCH, 8) @ w).sum(1) - batch["y"]  # noqa: E731
        loss = lambda w: jnp.where(mask, error(w) ** 2, 0).sum() / mask.sum()  # noqa: E731
        value, slope = jax.value_and_grad(loss)(w)
        return w - 1e-6 * slope, value

    w = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    loader = loader_of(disk, NamedSharding(mesh, P("data")))
    plain = plain_of(disk)
    _, ours, losses = loader.scan_epoch(
        loader.init_state(7), jax.device_put(w, split), update, steps=2 * STEPS
    )
    _, theirs, expected = plain.scan_epoch(
        plain.init_state(7), w, plain_update, steps=2 * STEPS
    )
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    same_walk(
        scanned(loader, loader.init_state(7), STEPS),
        iterated(plain, plain.init_state(7), STEPS),
    )


def test_a_state_that_a_device_holds(disk: Any) -> None:
    plain, loader = plain_of(disk), loader_of(disk, sharding_of("two axes"))
    expected = iterated(plain, plain.init_state(7), STEPS)
    state = jax.device_put(loader.init_state(7), jax.devices()[3])
    same_walk(stepped(loader, state, STEPS), expected)
    same_walk(scanned(loader, state, STEPS), expected)


def test_a_sample_that_cannot_be_read_fails_on_every_shard(tmp_path: Path) -> None:
    """One shard that failed alone would leave the others waiting for its sum."""
    path = tmp_path / "samples.npy"
    np.save(path, np.arange(40_000, dtype=np.float32).reshape(400, 100))
    loader = ms.DataLoader(
        [
            ms.NpySource(path, ordering="sequential"),
            ms.BatchTransform(BATCH),
            ms.DevicePutTransform(sharding_of("one axis")),
        ]
    )
    os.truncate(path, 128 + 150 * 400)  # rows 150 and on are gone

    def total(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + batch.sum(), batch.sum()

    for _ in range(2):  # and a second time from the same state
        with pytest.raises((OSError, ms.DataError), match=r"samples\.npy"):
            loader.scan_epoch(loader.init_state(7), 0.0, total)
    run = jax.jit(lambda state: loader.scan_epoch(state, 0.0, total)[1])
    with pytest.raises(_jit.FAILURES, match=r"samples\.npy"):
        jax.block_until_ready(run(loader.init_state(7)))
    with pytest.raises((OSError, ms.DataError), match=r"samples\.npy"):
        list(loader.iterate(loader.init_state(7)))


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_ctrl_c_ends_every_shard(kind: str, sources: Any) -> None:
    loader = loader_of(sources[kind](), sharding_of("one axis"))

    def total(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + batch["x"].sum(), None

    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        loader.scan_epoch(loader.init_state(7), 0, total, steps=1 << 30)
    timer.join()
    plain = plain_of(sources[kind]())
    same_walk(
        scanned(loader, loader.init_state(7), STEPS),
        iterated(plain, plain.init_state(7), STEPS),
    )


def test_a_sharding_of_one_device_is_that_device() -> None:
    device = jax.devices()[5]
    source = ms.ArraySampleSource(data())
    loader = loader_of(source, SingleDeviceSharding(device))
    batch, mask = next(loader.iterate(loader.init_state(7)))
    assert {x.device for x in (*batch.values(), mask)} == {device}


def test_what_cannot_be_split_is_refused() -> None:
    source = ms.ArraySampleSource(data())
    rows = NamedSharding(mesh_of({"data": 8}), P("data"))
    with pytest.raises(ValueError, match=r"batch of 12 .*divided by 8.*'data' of 8"):
        ms.DataLoader([source, ms.BatchTransform(12), ms.DevicePutTransform(rows)])
    with pytest.raises(ValueError, match="after BatchTransform"):
        ms.DataLoader([source, ms.DevicePutTransform(rows), ms.BatchTransform(16)])
    with pytest.raises(ValueError, match="after BatchTransform"):
        ms.DataLoader([source, ms.DevicePutTransform(rows)])
    partial = ms.BatchTransform(16, remainder="partial")
    with pytest.raises(ValueError, match=r"'partial'.*sharding"):
        ms.DataLoader([source, partial, ms.DevicePutTransform(rows)])
    mesh = mesh_of({"data": 2, "model": 4})
    flat = ms.ArraySampleSource({"y": data()["y"]})
    with pytest.raises(ValueError, match=r"at least 2 axes; \['y'\] has .*\[16\]"):
        loader_of(flat, NamedSharding(mesh, P("data", "model")))
    wide = ms.ArraySampleSource({"x": data()["x"]})
    with pytest.raises(ValueError, match=r"axis 1 of \['x'\], 3 long.*'model'.*4"):
        loader_of(wide, NamedSharding(mesh, P("data", "model")))
    with pytest.raises(ValueError, match="unconstrained"):
        ms.DevicePutTransform(NamedSharding(mesh, P(P.UNCONSTRAINED)))
    with pytest.raises(TypeError, match="NamedSharding of a mesh of devices"):
        ms.DevicePutTransform(NamedSharding(mesh.abstract_mesh, P("data")))
    with pytest.raises(ValueError, match="nowhere"):
        NamedSharding(mesh, P("nowhere"))
