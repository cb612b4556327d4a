"""Samples on disk come in the same order as arrays in memory."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CsvSource,
    DataError,
    DataLoader,
    IdxSource,
    NormalizeImageTransform,
    NpySource,
    NpzSource,
    Shuffle,
    Weighted,
)
from millstream._formats.detect import Options, find
from test_disk_formats import N, image_and_label, saved
from walks import (
    indexed,
    iterated,
    jitted,
    maps_over_seeds,
    same_bytes,
    same_walk,
    scanned,
    scans_over_seeds,
    specified,
    stepped,
)

# The same sequences as from memory, with every way of delivery.

ORDERS = {
    "shuffle": "shuffle",
    "sequential": "sequential",
    "windowed": Shuffle(window=2, block_size=8),
    "weighted": Weighted(np.arange(N) % 4, 150),
}


def test_shards_in_a_folder_follow_their_numbers(tmp_path: Path) -> None:
    for i in range(12):
        np.save(tmp_path / f"part-{i}.npy", np.full(2, i))
    source = NpySource(tmp_path, "sequential")
    assert [int(source[2 * i]) for i in range(12)] == list(range(12))
    (found,) = find(tmp_path, Options())
    (column,) = found.open(tmp_path).read(np.arange(0, 24, 2))
    assert column.tolist() == list(range(12))


@pytest.mark.parametrize("ordering", ORDERS)
@pytest.mark.parametrize("remainder", ["pad", "wrap"])
def test_the_order_matches_arrays_in_memory(
    tmp_path: Path, ordering: str, remainder: str
) -> None:
    data = image_and_label()
    source = NpySource(saved(tmp_path, data), ORDERS[ordering])
    batch = BatchTransform(16, remainder=remainder)
    loader = DataLoader([source, batch])
    memory = DataLoader([ArraySampleSource(data, ORDERS[ordering]), batch])
    state = loader.init_state(7)
    same_bytes(np.asarray(state.words), np.asarray(memory.init_state(7).words))
    steps = 2 * loader.steps_per_epoch + 3
    expected = iterated(memory, state, steps)
    same_walk(specified(loader, state, steps), expected)
    same_walk(indexed(loader, data, state, steps), expected)
    same_walk(iterated(loader, state, steps), expected)
    same_walk(stepped(loader, state, steps), expected)
    same_walk(jitted(loader, state, steps), expected)
    same_walk(scanned(loader, state, steps), expected)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("threads", [1, 4])
def test_threads_and_prefetch_change_nothing(
    tmp_path: Path, threads: int, prefetch: int
) -> None:
    data = image_and_label()
    pipeline = [NpySource(saved(tmp_path, data)), BatchTransform(8)]
    loader = DataLoader(pipeline, threads=threads, prefetch=prefetch)
    state = loader.init_state(1)
    expected = specified(loader, state, 40)
    same_walk(iterated(loader, state, 40), expected)
    same_walk(scanned(loader, state, 40), expected)


def test_stages_run_in_the_engine(tmp_path: Path) -> None:
    data = image_and_label()
    stages = [NormalizeImageTransform(), BatchTransform(16)]
    loader = DataLoader([NpySource(saved(tmp_path, data)), *stages])
    memory = DataLoader([ArraySampleSource(data), *stages])
    state = loader.init_state(0)
    expected = iterated(memory, state, 10)
    same_walk(iterated(loader, state, 10), expected)
    same_walk(scanned(loader, state, 10), expected)


def test_every_step_resumes(tmp_path: Path) -> None:
    paths = saved(tmp_path, image_and_label())
    loader = DataLoader([NpySource(paths), BatchTransform(16)])
    steps = loader.steps_per_epoch + 3
    whole = iterated(loader, loader.init_state(4), steps)
    state = loader.init_state(4)
    for done in range(steps):
        again = DataLoader([NpySource(paths), BatchTransform(16)])
        rest = jax.tree.map(lambda x, d=done: x[d:], whole)
        same_walk(iterated(again, state, steps - done), rest)
        _, state, _ = loader.next_batch(state)
    step = jax.jit(loader.next_batch)
    state = loader.init_state(4)
    for done in range(steps):
        rest = jax.tree.map(lambda x, d=done: x[d:], whole)
        same_walk(iterated(loader, state, steps - done), rest)
        _, state, _ = step(state)


def test_vmap_over_states(tmp_path: Path) -> None:
    data = image_and_label()
    loader = DataLoader([NpySource(saved(tmp_path, data)), BatchTransform(16)])
    maps_over_seeds(loader, 3, 9)
    scans_over_seeds(loader, 3, 9)


def test_inside_the_users_jit(tmp_path: Path) -> None:
    data = image_and_label()
    loader = DataLoader([NpySource(saved(tmp_path, data)), BatchTransform(16)])

    @jax.jit
    def epoch(state: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            state, total = carry
            batch, state, mask = loader.next_batch(state)
            return state, total + jnp.sum(batch["label"] * mask)

        return jax.lax.fori_loop(0, loader.steps_per_epoch, step, (state, 0))

    assert epoch(loader.init_state(0))[1] == data["label"].sum()


def test_splits_and_folds_match_arrays_in_memory(tmp_path: Path) -> None:
    data = image_and_label()
    source, memory = NpySource(saved(tmp_path, data)), ArraySampleSource(data)
    pairs = [
        *zip(source.split(70, 33, seed=2), memory.split(70, 33, seed=2), strict=True),
        *zip(source.folds(4)[1], memory.folds(4)[1], strict=True),
        (
            source.split(50, 53)[1].split(20, 33)[0],
            memory.split(50, 53)[1].split(20, 33)[0],
        ),
    ]
    for ours, theirs in pairs:
        assert len(ours) == len(theirs) < N
        loader = DataLoader([ours, BatchTransform(16)])
        other = DataLoader([theirs, BatchTransform(16)])
        state = loader.init_state(0)
        steps = loader.steps_per_epoch
        same_walk(iterated(loader, state, steps), iterated(other, state, steps))


# 64 bits.


def test_int64_labels_come_as_int32_and_are_checked_on_reading(tmp_path: Path) -> None:
    wide = np.arange(20)
    wide[13] = 2**40 + 5
    np.save(tmp_path / "y.npy", wide)
    source = NpySource({"label": tmp_path / "y.npy"}, "sequential")
    loader = DataLoader([source, BatchTransform(5)])
    assert loader.element_spec()["label"].dtype == np.int32
    message = r"y\.npy: label: sample 13 holds a .* int64 that int32 cannot hold"
    state = loader.init_state(0)
    with pytest.raises(DataError, match=message):
        list(loader.iterate(state))
    first, state, _ = loader.next_batch(state)
    assert first["label"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match=message):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, b))
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(
            jax.jit(lambda s: loader.next_batch(loader.next_batch(s)[1]))(state)
        )
    assert isinstance(loader.last_error, DataError)


def test_a_table_is_checked_when_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"a\n1\n{2**40}\n")
    with pytest.raises(DataError, match=r"t\.csv: .*'?a'?.*sample 1|1099511627776"):
        CsvSource(tmp_path / "t.csv")


def test_with_x64_nothing_is_narrowed(tmp_path: Path, python: Any) -> None:
    np.save(tmp_path / "y.npy", np.array([1, 2**40 + 5]))
    code = f"""
        import numpy as np
        from millstream import BatchTransform, DataLoader, NpySource
        source = NpySource({str(tmp_path / "y.npy")!r}, "sequential")
        loader = DataLoader([source, BatchTransform(2)])
        state = loader.init_state(0)
        for batch in (
            loader.next_batch(state)[0],
            loader.scan_epoch(state, 0, lambda c, b, m: (c, b))[2],
        ):
            assert batch.dtype == np.int64, batch.dtype
            assert batch.reshape(-1).tolist() == [1, 2**40 + 5]
        print("right")
    """
    assert "right" in python.run(code, JAX_ENABLE_X64="1")


# Descriptions.


def test_descriptions_say_what_they_are(tmp_path: Path) -> None:
    data = image_and_label()
    paths = {name: str(path) for name, path in saved(tmp_path, data).items()}
    source = NpySource(paths, "sequential")
    assert repr(source) == f"NpySource(paths={paths!r}, ordering='sequential')"
    assert source == NpySource(paths, "sequential")
    assert source != NpySource(paths)
    with pytest.raises(AttributeError, match="cannot assign to field 'paths'"):
        source.paths = {}  # type: ignore[misc]
    for wrong in ({}, None, []):
        with pytest.raises(ValueError, match=r"NpySource.*no files"):
            NpySource(wrong)
    with pytest.raises(TypeError, match="expected the path of a file, found 3"):
        NpySource({"x": 3})
    with pytest.raises(ValueError, match="unknown ordering 'shufle'"):
        NpySource(paths, "shufle")


# Read-ahead advice to the kernel.


def advice(path: Path) -> set[str]:
    """Returns the kernel's flags of this process's memory map of a file."""
    flags: set[str] = set()
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("VmFlags:") and inside:
            flags |= set(line.split()[1:])
        elif not line.split()[0].endswith(":"):
            inside = line.endswith(f" {path}")
    return flags


def test_large_rows_disable_read_ahead(tmp_path: Path) -> None:
    seen = {}
    for row in (784, 16384):
        path = (tmp_path / f"{row}.npy").resolve()
        np.save(path, np.zeros((64, row), np.uint8))
        loader = DataLoader([NpySource(path), BatchTransform(8)])
        loader.next_batch(loader.init_state(0))
        seen[row] = "rr" in advice(path)
        del loader
    assert seen == {784: False, 16384: True}


@pytest.mark.parametrize("kind", ["npz", "gz"])
def test_another_file_of_the_same_size_and_time(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    open_ = NpzSource if kind == "npz" else IdxSource
    found = []
    for value in (1, 2):
        rows = np.full((4, 3), value, np.uint8)
        if kind == "npz":
            np.savez_compressed(path, x=rows)
        else:
            header = bytes([0, 0, 8, 2, 0, 0, 0, 4, 0, 0, 0, 3])
            path.write_bytes(gzip.compress(header + rows.tobytes(), mtime=0))
        os.utime(path, ns=(10**18, 10**18))
        found.append(path.stat().st_size)
        source = open_(path, cache_dir=tmp_path / "cache")
        batch = source[0]["x"] if kind == "npz" else source[0]
        assert (np.asarray(batch) == value).all()
    assert found[0] == found[1]
