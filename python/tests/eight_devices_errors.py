"""Errors on eight devices. test_sharding.py runs it in a process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import jax
import millstream as ms
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P
from meshes import BATCH, STEPS, data, loader_of, mesh_of, plain_of, sharding_of
from millstream._delivery import jit
from walks import iterated, same_walk, scanned


def test_a_read_error_fails_on_every_shard(tmp_path: Path) -> None:
    """If only one shard failed, the others would wait forever in the collective."""
    path = tmp_path / "samples.npy"
    np.save(path, np.arange(40_000, dtype=np.float32).reshape(400, 100))
    loader = ms.DataLoader(
        [
            ms.NpySource(path, ordering="sequential"),
            ms.BatchTransform(BATCH),
            ms.DevicePutTransform(sharding_of("one axis")),
        ]
    )
    os.truncate(path, 128 + 150 * 400)  # rows from 150 on are gone

    def total(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + batch.sum(), batch.sum()

    for _ in range(2):  # and once more from the same state
        with pytest.raises((OSError, ms.DataError), match=r"samples\.npy"):
            loader.scan_epoch(loader.init_state(7), 0.0, total)
    run = jax.jit(lambda state: loader.scan_epoch(state, 0.0, total)[1])
    with pytest.raises(jit.FAILURES, match=r"samples\.npy"):
        jax.block_until_ready(run(loader.init_state(7)))
    with pytest.raises((OSError, ms.DataError), match=r"samples\.npy"):
        list(loader.iterate(loader.init_state(7)))


def _mapped(path: Path) -> np.memmap[Any, Any]:
    """One batch of rows, each a page of its own."""
    mapped = np.memmap(path, np.int64, "w+", shape=(BATCH, 512))
    mapped[:] = np.arange(BATCH)[:, None]
    return mapped


@pytest.mark.parametrize("prefetch", [None, 0])
@pytest.mark.parametrize("what", ["value", "mapped value", "page"])
def test_an_error_in_the_rows_of_one_shard_fails_on_every_shard(
    what: str, prefetch: int | None, tmp_path: Path
) -> None:
    """Seven shards can be read, and would wait in the sum for the last one."""
    path = tmp_path / "samples"
    rows: np.ndarray = _mapped(path)
    if what == "value":
        rows = np.array(rows)
    sharding = sharding_of("one axis")
    source = ms.ArraySampleSource(rows, ordering="sequential")
    loader, other = [loader_of(source, sharding, prefetch=prefetch) for _ in "ab"]

    def program(loader: ms.DataLoader) -> Any:
        def total(state: Any) -> Any:
            batch, _, _ = loader.next_batch(state)

            def summed(rows: Any) -> Any:
                return jax.lax.psum(rows.sum(), "data")

            return jax.shard_map(
                summed, mesh=sharding.mesh, in_specs=P("data"), out_specs=P()
            )(batch)

        return jax.jit(total)

    start = loader.init_state(7)
    healthy = 512 * sum(range(BATCH))
    assert int(program(other)(start)) == healthy
    if what != "page":
        rows[-1, -1] = 1 << 40  # which 32 bits cannot hold
        expected = "sample 15"
    else:
        os.truncate(path, (BATCH - 1) * 4096)
        path.unlink()  # so that its size is not known, and only this page is missing
        expected = "samples: offset 61440"
    run = program(loader)
    for _ in range(3):
        with pytest.raises(jit.FAILURES, match=expected):
            jax.block_until_ready(run(start))
        loader._built.forget_error()
    if what != "page":
        rows[-1, -1] = BATCH - 1
        assert int(run(start)) == healthy


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_ctrl_c_ends_every_shard(kind: str, tmp_path: Path) -> None:
    source: Any = ms.ArraySampleSource(data())
    if kind == "disk":
        ms.write_packed(source, tmp_path / "samples.packed")
        source = ms.PackedSource(tmp_path / "samples.packed")
    loader = loader_of(source, sharding_of("one axis"))

    def total(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + batch["x"].sum(), None

    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        loader.scan_epoch(loader.init_state(7), 0, total, steps=1 << 30)
    timer.join()
    plain = plain_of(source)
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


def test_wrong_shardings_are_errors() -> None:
    source = ms.ArraySampleSource(data())
    rows = NamedSharding(mesh_of({"data": 8}), P("data"))
    with pytest.raises(ValueError, match=r"batch of 12 .*split into 8.*'data' of 8"):
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
    with pytest.raises(ValueError, match=r"at least 2 axes, but \['y'\] has .*\[16\]"):
        loader_of(flat, NamedSharding(mesh, P("data", "model")))
    wide = ms.ArraySampleSource({"x": data()["x"]})
    with pytest.raises(ValueError, match=r"axis 1 of \['x'\] has length 3.*4.*'model'"):
        loader_of(wide, NamedSharding(mesh, P("data", "model")))
    with pytest.raises(ValueError, match="unconstrained"):
        ms.DevicePutTransform(NamedSharding(mesh, P(P.UNCONSTRAINED)))
    with pytest.raises(
        ValueError, match="jit does not preserve memory_kind='unpinned_host'"
    ):
        loader_of(source, rows.with_memory_kind("unpinned_host"))
    single = SingleDeviceSharding(jax.devices()[1], memory_kind="pinned_host")
    with pytest.raises(ValueError, match="is not supported for a single device"):
        loader_of(source, single)
    with pytest.raises(TypeError, match="NamedSharding over a Mesh"):
        ms.DevicePutTransform(NamedSharding(mesh.abstract_mesh, P("data")))
    with pytest.raises(ValueError, match="nowhere"):
        NamedSharding(mesh, P("nowhere"))
