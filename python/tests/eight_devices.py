"""Batches on a mesh of eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from meshes import (
    BATCH,
    LAYOUTS,
    STEPS,
    N,
    data,
    loader_of,
    mesh_of,
    plain_of,
    sharding_of,
)
from millstream._delivery import jit
from walks import iterated, jitted, same_bytes, same_walk, scanned, stepped


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


def check_layout(walk: Any, sharding: NamedSharding) -> None:
    for leaf in jax.tree.leaves(walk):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim), leaf.sharding


def check_same(source: Any, sharding: NamedSharding) -> None:
    """Checks that all ways of delivery give the batches of one device, split."""
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
    # From the middle of an epoch, with a state from either loader.
    for state in (after, plain.next_batch(plain.init_state(7))[1]):
        rest = jax.tree.map(lambda x: x[1:], expected)
        same_walk(iterated(loader, state, 2 * STEPS - 1), rest)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_batches_of_one_device(layout: str, disk: Any) -> None:
    check_same(disk, sharding_of(layout))


def test_every_source_gives_the_batches_of_one_device(source: Any) -> None:
    check_same(source, sharding_of("three axes"))


@pytest.mark.parametrize("layout", ["three axes", "one axis"])
def test_meshes_with_explicit_axes(layout: str, disk: Any) -> None:
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


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("after", ["the engine", "a traced stage"])
def test_batches_in_pinned_memory(kind: AxisType, after: str, disk: Any) -> None:
    mesh = mesh_of({"data": 4, "model": 2}, kind)
    sharding = NamedSharding(mesh, P("data"), memory_kind="pinned_host")
    stages = [disk, ms.BatchTransform(BATCH)]
    if after == "a traced stage":
        stages.append(ms.MapTransform(lambda batch, mask: {"x": batch["x"] * 2}))
    plain = ms.DataLoader(stages)
    loader = ms.DataLoader([*stages, ms.DevicePutTransform(sharding)])
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), STEPS)
    for walk in (iterated, jitted, scanned):
        same_walk(walk(loader, start, STEPS), expected)
    batch, mask = next(loader.iterate(start))
    traced, _, traced_mask = jax.jit(loader.next_batch)(start)
    _, _, kept = loader.scan_epoch(start, 0, lambda carry, batch, mask: (carry, batch))
    for leaf in jax.tree.leaves((batch, traced, kept)):
        assert leaf.sharding.memory_kind == "pinned_host"
    check_layout(traced, sharding)
    assert mask.sharding == traced_mask.sharding == NamedSharding(mesh, P("data"))


def test_regions_are_aligned_and_shared_by_replicas(source: Any) -> None:
    loader = loader_of(source, sharding_of("replicas across a model axis"))
    for batch, _ in loader.iterate(loader.init_state(7)):
        for leaf in batch.values():
            places: dict[Any, set[int]] = {}
            for shard in leaf.addressable_shards:
                pointer = shard.data.unsafe_buffer_pointer()
                assert pointer % 64 == 0
                places.setdefault(shard.index[0].start, set()).add(pointer)
            # Two devices hold each row but alias one copy.
            assert [len(found) for found in places.values()] == [1] * 4


@pytest.mark.parametrize("layout", ["three axes", "everywhere whole"])
def test_each_row_is_read_once(layout: str, source: Any) -> None:
    for walk in (iterated, jitted):
        loader = loader_of(source, sharding_of(layout), prefetch=0)
        walk(loader, loader.init_state(7), STEPS)
        resident_in_jit = loader._built.traits.immediate and walk is not iterated
        copies = loader._built.split.devices // len(loader._built.split.local_shards)
        row = sum(x[0].nbytes for x in data().values())
        # Inside jit every device gathers its own rows from memory.
        assert loader.bytes_read == N * row * (copies if resident_in_jit else 1)


def test_traced_stages_see_sharded_batches(packed: Path) -> None:
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
    seen.clear()
    batch, _, _ = jax.jit(loader.next_batch)(loader.init_state(7))
    same_bytes(batch["y"], expected["y"][0] + 1)
    check_layout(batch, sharding)
    assert len(seen) == 1  # once per batch, not once per device


@pytest.mark.parametrize("order", ["sequential", ms.Shuffle(window=2, block_size=8)])
def test_a_traced_gather_is_sharded_too(order: Any) -> None:
    sharding = sharding_of("three axes")
    source = ms.ArraySampleSource(data(), order)
    plain, loader = plain_of(source), loader_of(source, sharding, traced=True)
    start = loader.init_state(7)
    expected = iterated(plain, plain.init_state(7), STEPS)
    same_walk(iterated(loader, start, STEPS), expected)
    check_layout(jax.jit(loader.next_batch)(start)[0], sharding)


def test_a_host_callback_gives_the_same_shards(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = plain_of(source)
    expected = iterated(plain, plain.init_state(7), STEPS)
    monkeypatch.setattr(jit, "_only_cpu", lambda: False)
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *x, cpu, default: default(*x)
    )
    for layout in ("three axes", "one axis"):
        loader = loader_of(source, sharding_of(layout), prefetch=0)
        same_walk(jitted(loader, loader.init_state(7), STEPS), expected)
        # All devices of the process share one batch.
        assert loader.bytes_read == N * sum(x[0].nbytes for x in data().values())


def test_each_mask_is_a_separate_array(source: Any) -> None:
    plain, loader = plain_of(source), loader_of(source, sharding_of("three axes"))
    expected = [np.array(m) for _, m in plain.iterate(plain.init_state(7), steps=STEPS)]
    found = []
    for _, mask in loader.iterate(loader.init_state(7), steps=STEPS):
        found.append(np.array(mask))
        mask.delete()
    np.testing.assert_array_equal(found, expected)


def test_early_transfers_change_nothing(source: Any) -> None:
    plain, loader = plain_of(source), loader_of(source, sharding_of("two axes"))
    loader._delivery.transfers = True  # as on an accelerator
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


def test_a_model_with_other_shardings(disk: Any) -> None:
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


def test_a_state_on_a_device(disk: Any) -> None:
    plain, loader = plain_of(disk), loader_of(disk, sharding_of("two axes"))
    expected = iterated(plain, plain.init_state(7), STEPS)
    state = jax.device_put(loader.init_state(7), jax.devices()[3])
    same_walk(stepped(loader, state, STEPS), expected)
    same_walk(scanned(loader, state, STEPS), expected)


def test_fields_with_an_axis_of_length_one() -> None:
    arrays = {"z": data()["z"].reshape(N, 1, 2, 4, 1), "y": np.arange(N)[:, None]}
    source = ms.ArraySampleSource(arrays)
    plain = plain_of(source)
    expected = iterated(plain, plain.init_state(7), 2 * STEPS)
    mesh = mesh_of({"data": 4, "model": 2})
    for spec in (P("data"), P(("data", "model"))):
        loader = loader_of(source, NamedSharding(mesh, spec))
        same_walk(scanned(loader, loader.init_state(7), 2 * STEPS), expected)
    split = {
        "z": NamedSharding(mesh, P("data", None, "model")),
        "y": NamedSharding(mesh, P("data")),
    }
    loader = loader_of(source, split)
    same_walk(scanned(loader, loader.init_state(7), 2 * STEPS), expected)
