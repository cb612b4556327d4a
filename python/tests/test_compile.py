"""JAX's compilation cache, devices and 64-bit types."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Python, rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    NormalizeImageTransform,
)
from walks import iterated, jitted, same_bytes, same_walk, scanned, specified

RUN_WITH_CACHE = """
    import json, sys
    import jax, jax.monitoring, jax.numpy as jnp, numpy as np

    hits = []
    misses = []
    def note(event, **_):
        if event == "/jax/compilation_cache/cache_hits":
            hits.append(event)
        if event == "/jax/compilation_cache/cache_misses":
            misses.append(event)
    jax.monitoring.register_event_listener(note)

    from millstream import ArraySampleSource, BatchTransform, DataLoader

    data = np.arange(23 * 3, dtype=np.int32).reshape(23, 3) * SCALE
    loader = DataLoader([ArraySampleSource({"x": data}), BatchTransform(5)])

    def body(carry, batch, mask):
        return carry + batch["x"].sum(), mask.sum()

    @jax.jit
    def own(state):
        return loader.scan_epoch(state, jnp.int32(0), body)

    state = loader.init_state(3)
    totals = [int(loader.scan_epoch(state, jnp.int32(0), body)[1]), int(own(state)[1])]
    step = jax.jit(loader.next_batch)
    total = 0
    for _ in range(loader.steps_per_epoch):
        batch, state, _ = step(state)
        total += int(np.asarray(batch["x"]).sum())
    totals.append(total)
    loop = loader.iterate(loader.init_state(3))
    totals.append(sum(int(np.asarray(b["x"]).sum()) for b, _ in loop))
    print(json.dumps([totals, len(hits), len(misses)]))
"""


def test_the_persistent_cache_hits_and_uses_the_data_of_its_run(
    python: Python, tmp_path: Path
) -> None:
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def run(scale: int) -> Any:
        return json.loads(
            python.run(RUN_WITH_CACHE.replace("SCALE", str(scale)), **cache)
        )

    whole = sum(range(23 * 3))
    totals, _, misses = run(1)
    assert totals == [whole] * 4
    assert misses > 0
    files = sorted(path.name for path in (tmp_path / "cache").glob("*-cache"))
    assert files
    for scale in (1, 2):  # the same data, then other data of the same shape
        totals, hits, misses_again = run(scale)
        assert totals == [scale * whole] * 4
        assert (hits, misses_again) == (misses, 0)
    assert sorted(p.name for p in (tmp_path / "cache").glob("*-cache")) == files


ON_EIGHT_DEVICES = """
    import numpy as np, jax, jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from conftest import rows_of
    from millstream import ArraySampleSource, BatchTransform, DataLoader
    from millstream import DevicePutTransform, NormalizeImageTransform
    from walks import specified, iterated, same_bytes, same_walk, stepped

    devices = jax.devices()
    assert len(devices) == 8
    mesh = Mesh(np.array(devices), ("data",))
"""


def on_eight(python: Python, code: str) -> None:
    whole = textwrap.dedent(ON_EIGHT_DEVICES) + textwrap.dedent(code)
    python.run(whole, XLA_FLAGS="--xla_force_host_platform_device_count=8")


def test_shard_map_steps_a_stream_on_each_device(python: Python) -> None:
    on_eight(
        python,
        """
        loader = DataLoader([ArraySampleSource(rows_of(23)), BatchTransform(5)])
        states = jax.vmap(loader.init_state)(jnp.arange(8))

        def each(state):
            state = jax.tree.map(lambda x: x[0], state)
            _, _, out = loader.scan_epoch(
                state, 0, lambda c, b, m: (c, (b, m, jax.lax.psum(b["x"], "data")))
            )
            return jax.tree.map(lambda x: x[None], out)

        run = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=P("data"),
                                    out_specs=P("data"), check_vma=False))
        batches, masks, summed = run(states)
        total = 0
        for seed in range(8):
            expected = specified(loader, loader.init_state(seed), 5)
            same_bytes(jax.tree.map(lambda x: x[seed], (batches, masks)), expected[:2])
            total = total + expected[0]["x"]
        assert np.array_equal(summed[3], total)
        """,
    )


def test_shard_map_with_checks(python: Python) -> None:
    on_eight(
        python,
        """
        loader = DataLoader([ArraySampleSource(rows_of(23)), BatchTransform(5)])
        states = jax.vmap(loader.init_state)(jnp.arange(8))

        def each(state):
            batch, after, mask = loader.next_batch(jax.tree.map(lambda x: x[0], state))
            return jax.tree.map(lambda x: x[None], (batch, after, mask))

        run = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=P("data"),
                                    out_specs=P("data")))
        batch, _, _ = run(states)
        for seed in range(8):
            expected = specified(loader, loader.init_state(seed), 1)
            assert np.array_equal(batch["x"][seed], expected[0]["x"][0])
        """,
    )


def test_batches_go_to_the_given_device(python: Python) -> None:
    on_eight(
        python,
        """
        big = {"image": np.arange(40 * 50_000, dtype=np.uint8).reshape(40, 50_000)}
        for data, batch in ((rows_of(23), 5), (big, 24)):
            for where, name in ((devices[3], devices[3]), (devices[5], "cpu:5")):
                for stages in ([], [DevicePutTransform(devices[1])]):
                    source = ArraySampleSource(data)
                    put = [*stages, DevicePutTransform(name)]
                    loader = DataLoader([source, BatchTransform(batch), *put])
                    state = loader.init_state(1)
                    expected = specified(loader, state, 6)
                    same_walk(iterated(loader, state, 6), expected)
                    for value, mask in loader.iterate(state, steps=6):
                        for leaf in jax.tree.leaves((value, mask)):
                            assert leaf.devices() == {where}, (leaf.devices(), where)
        first = DataLoader([ArraySampleSource(rows_of(23)), BatchTransform(5),
                            DevicePutTransform()])
        batch, mask = next(first.iterate(first.init_state(0)))
        assert batch["x"].devices() == {devices[0]}
        """,
    )


def test_batches_stay_where_they_were_put(python: Python) -> None:
    """For any default device of JAX and any device of the state."""
    on_eight(
        python,
        """
        def places(walk):
            leaves = [leaf for pair in walk for leaf in jax.tree.leaves(pair)]
            return {(*leaf.devices(),) for leaf in leaves}

        def eager(loader, state, steps):
            for _ in range(steps):
                value, state, mask = loader.next_batch(state)
                yield value, mask

        import millstream as ms
        doubled = ms.MapTransform(lambda b, m: {"x": b["x"] * 2})
        for width in (3, 1 << 17):
            for traced in (False, True):
                for stages in ([], [doubled]):
                    source = ArraySampleSource({"x": np.ones((23, width), np.float32)})
                    line = [source, BatchTransform(5), *stages]
                    put = [*line, DevicePutTransform(devices[3])]

                    with jax.default_device(devices[3]):
                        loader = DataLoader(put, traced=traced)
                        state = loader.init_state(0)
                        assert places(loader.iterate(state, steps=6)) == {(devices[3],)}
                    assert places(loader.iterate(state, steps=6)) == {(devices[3],)}
                    assert places(eager(loader, state, 6)) == {(devices[3],)}
                    with jax.default_device(devices[6]):
                        assert places(loader.iterate(state, steps=6)) == {(devices[3],)}

                    loader = DataLoader(line, traced=traced)
                    there = jax.device_put(state, devices[5])
                    for each in (state, there):
                        assert places(loader.iterate(each, steps=6)) == {(devices[0],)}
                        assert places(eager(loader, each, 6)) == {(devices[0],)}
                    with jax.default_device(devices[2]):
                        for each in (state, there):
                            found = places(loader.iterate(each, steps=6))
                            assert found == {(devices[2],)}, found
        """,
    )


def test_a_jitted_step_runs_where_its_state_is(python: Python) -> None:
    on_eight(
        python,
        """
        loader = DataLoader([ArraySampleSource(rows_of(23)), BatchTransform(5)])
        state = jax.device_put(loader.init_state(0), devices[2])
        expected = specified(loader, loader.init_state(0), 5)
        same_walk(stepped(loader, state, 5, jax.jit(loader.next_batch)), expected)
        batch, after, mask = jax.jit(loader.next_batch)(state)
        assert after.words.devices() == batch["x"].devices() == {devices[2]}
        same_walk(iterated(loader, state, 5), expected)
        with jax.default_device(devices[4]):
            same_walk(iterated(loader, loader.init_state(0), 5), expected)
            batch, mask = next(loader.iterate(loader.init_state(0)))
            assert batch["x"].devices() == {devices[4]}, batch["x"].devices()
        """,
    )


def wide_loader(**knobs: Any) -> DataLoader:
    data = {
        "image": np.arange(46, dtype=np.float64).reshape(23, 2),
        "label": np.arange(23) - 5,
        "count": np.arange(23, dtype=np.uint64),
    }
    stages = [ArraySampleSource(data), NormalizeImageTransform(dtype=jnp.float64)]
    return DataLoader([*stages, BatchTransform(5)], **knobs)


@pytest.mark.parametrize("wide", [False, True])
def test_64_bit_types_need_x64(wide: bool) -> None:
    with jax.enable_x64(wide):
        loader = wide_loader()
        spec = loader.element_spec()
        names = {key: leaf.dtype.name for key, leaf in spec.items()}
        bits = 64 if wide else 32
        assert names == {
            "image": f"float{bits}",
            "label": f"int{bits}",
            "count": f"uint{bits}",
        }
        state = loader.init_state(4)
        expected = specified(loader, state, 15)
        assert expected[0]["label"].dtype == f"int{bits}"
        assert sorted(expected[0]["label"][:5].ravel()[:23]) == list(range(-5, 18))
        same_walk(iterated(loader, state, 15), expected)
        same_walk(jitted(loader, state, 15), expected)
        same_walk(scanned(loader, state, 15), expected)
        same_walk(scanned(wide_loader(traced=True), state, 15), expected)


def test_values_that_need_64_bits_pass_with_x64() -> None:
    with jax.enable_x64(True):
        data = np.array([2**40 + 5, -(2**50), 3])
        loader = DataLoader([ArraySampleSource(data, "sequential"), BatchTransform(3)])
        batch, _ = next(loader.iterate(loader.init_state(0)))
        assert np.asarray(batch).tolist() == data.tolist()


def test_a_state_made_without_x64_resumes_with_it() -> None:
    data = rows_of(23)
    narrow = DataLoader([ArraySampleSource(data), BatchTransform(5)])
    _, state, _ = narrow.next_batch(narrow.init_state(7))
    with jax.enable_x64(True):
        loader = DataLoader([ArraySampleSource(data), BatchTransform(5)])
        assert loader.init_state(7) == narrow.init_state(7)
        found = iterated(loader, state, 4)
    same_bytes(found[:2], specified(narrow, state, 4)[:2])
