"""ArraySampleSource: any structure, strides and dtype, read in place."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataLoader,
    NpySource,
)
from walks import iterated, same_bytes, same_walk, scanned, specified

N, BATCH, STEPS = 11, 4, 3

Pair = namedtuple("Pair", ["first", "second"])


def batches_of(data: Any, n: int = N) -> Any:
    """Returns the valid rows of an epoch. Checks that both ways of delivery agree."""
    loader = DataLoader([ArraySampleSource(data, "sequential"), BatchTransform(BATCH)])
    state = loader.init_state(0)
    walk = specified(loader, state, loader.steps_per_epoch)
    same_walk(iterated(loader, state, loader.steps_per_epoch), walk)
    same_walk(scanned(loader, state, loader.steps_per_epoch), walk)
    return jax.tree.map(lambda x: x[walk[1]][:n], walk[0])


TREES = {
    "one array": np.arange(N),
    "a dict of dicts": {"a": {"b": np.arange(N)}, "c": np.ones((N, 2, 2), np.uint8)},
    "a tuple": (np.arange(N), np.arange(N) * 0.5),
    "lists in a dict": {"views": [np.ones((N, 3)), np.zeros(N)], "y": np.arange(N)},
    "a named tuple": Pair(np.arange(N), {"deep": (np.arange(N),)}),
    "keys with slashes": {"a/b": np.arange(N), "a": {"c": np.arange(N) + 1}},
    "keys that are numbers": {0: np.arange(N), 1: np.ones(N)},
    "with none in it": {"x": np.arange(N), "nothing": None},
    "twenty columns": {f"column{i}": np.arange(N) * i for i in range(20)},
    "ordered": OrderedDict([("z", np.arange(N)), ("a", np.ones(N))]),
    "rows of nothing": {"x": np.zeros((N, 0), np.float32), "y": np.arange(N)},
}


@pytest.mark.parametrize("name", TREES)
def test_any_tree_keeps_its_structure(name: str) -> None:
    data = TREES[name]
    found = batches_of(data)
    narrow = {np.dtype(np.int64): np.int32, np.dtype(np.float64): np.float32}
    wanted = jax.tree.map(lambda x: x.astype(narrow.get(x.dtype, x.dtype)), data)
    same_bytes(found, wanted)


class Lazy:
    """An object that NumPy can convert to an array."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.arange(N, dtype=np.float32)


ARRAY_LIKES = {
    "range": range(N),
    "an array protocol": Lazy(),
    "memoryview": memoryview(np.arange(N, dtype=np.int32)),
    "a matrix of NumPy's": np.ma.masked_array(np.arange(N)),
}


@pytest.mark.parametrize("name", ARRAY_LIKES)
def test_array_likes_are_converted_to_arrays(name: str) -> None:
    assert np.asarray(batches_of({"x": ARRAY_LIKES[name]})["x"]).tolist() == list(
        range(N)
    )


DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "uint8",
    "uint16",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
]


def test_every_dtype_passes_unchanged() -> None:
    values = np.arange(N * 3).reshape(N, 3) - 7
    data = {name: values.astype(jnp.dtype(name)) for name in DTYPES}
    data["complex64"] = data["complex64"] * np.complex64(1 - 2j)
    same_bytes(batches_of(data), data)
    loader = DataLoader([ArraySampleSource(data), BatchTransform(BATCH)])
    traced = DataLoader([ArraySampleSource(data), BatchTransform(BATCH)], traced=True)
    state = loader.init_state(2)
    same_walk(scanned(traced, state, STEPS), specified(loader, state, STEPS))


def test_wide_dtypes_are_narrowed_as_jax_does() -> None:
    values = np.arange(N * 2).reshape(N, 2) * 1.25 - 7
    wide = ("int64", "uint64", "float64", "complex128")
    data = {name: np.abs(values).astype(name) for name in wide}
    found = batches_of(data)
    wanted = {name: np.asarray(jnp.asarray(x)) for name, x in data.items()}
    same_bytes(found, wanted)


STRIDED = {
    "every other row": lambda x: x[::2],
    "backwards": lambda x: x[::-1],
    "every third backwards": lambda x: x[::-3],
    "a window of each row": lambda x: x[:, 1:3],
    "a column": lambda x: x[:, 2],
    "every other column": lambda x: x[:, ::2],
    "columns backwards": lambda x: x[:, ::-1],
    "transposed": lambda x: x.T,
    "Fortran's order": np.asfortranarray,
    "one row for all": lambda x: np.broadcast_to(x[0], x.shape),
    "overlapping windows": lambda x: np.lib.stride_tricks.sliding_window_view(
        x[:, 0], 5
    ),
    "big-endian": lambda x: x.astype(">i4"),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "not aligned": lambda x: (
        np.frombuffer(b"." + x.tobytes(), np.int8)[1:].view(np.int32).reshape(x.shape)
    ),
    "a field of records": lambda x: np.rec.fromarrays([x[:, 0], x[:, 1]]).f1,
}


@pytest.mark.parametrize("name", STRIDED)
def test_any_strides(name: str) -> None:
    base = np.arange(30 * 4, dtype=np.int32).reshape(30, 4)
    data = STRIDED[name](base)
    assert np.array_equal(batches_of(data, len(data)), data)


@pytest.mark.parametrize(
    "name", ["every other row", "backwards", "a window of each row"]
)
def test_rows_at_any_stride_are_read_in_place(name: str) -> None:
    base = np.arange(30 * 4, dtype=np.int32).reshape(30, 4)
    data = STRIDED[name](base)
    loader = DataLoader([ArraySampleSource(data, "sequential"), BatchTransform(2)])
    base += 1000
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert np.array_equal(batch, data[:2])


def test_arrays_that_are_not_dense_are_copied_once() -> None:
    base = np.arange(30 * 4, dtype=np.int32).reshape(30, 4)
    wanted = base[:2, ::2].copy()
    loader = DataLoader(
        [ArraySampleSource(base[:, ::2], "sequential"), BatchTransform(2)]
    )
    base += 1000
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert np.array_equal(batch, wanted)


def test_a_billion_rows_with_stride_zero_need_no_memory() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    data = np.broadcast_to(np.arange(4, dtype=np.float32), (10**9, 4))
    loader = DataLoader([ArraySampleSource({"x": data}), BatchTransform(128)])
    assert loader.steps_per_epoch == 10**9 // 128
    state = loader.init_state(0)
    for batch, mask in loader.iterate(state, steps=10):
        assert mask.all()
        assert (np.asarray(batch["x"]) == np.arange(4)).all()
    assert process.memory_info().rss - before < 200 << 20
    samples = loader.which_samples(state)
    assert len(np.unique(samples)) == 128


def test_jax_arrays_are_read_in_place() -> None:
    data = jnp.arange(1 << 24, dtype=jnp.int32).reshape(1 << 14, 1 << 10)
    jax.block_until_ready(data)
    source = ArraySampleSource({"x": data})
    address = source._leaves[0].__array_interface__["data"][0]
    assert address == data.unsafe_buffer_pointer()
    process = psutil.Process()
    before = process.memory_info().rss
    loader = DataLoader([source, BatchTransform(4)])
    batch, _ = next(loader.iterate(loader.init_state(0)))
    assert process.memory_info().rss - before < 32 << 20
    samples = loader.which_samples(loader.init_state(0))
    assert np.array_equal(np.asarray(batch["x"])[:, 0], samples << 10)


def test_numpy_arrays_are_read_in_place() -> None:
    data = rows_of(N)
    loader = DataLoader([ArraySampleSource(data, "sequential"), BatchTransform(2)])
    data["x"][1] = 77
    batch, _, _ = jax.jit(loader.next_batch)(loader.init_state(0))
    assert batch["x"][1].tolist() == [77] * 3


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_a_mapped_array_is_read_like_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(640, dtype=np.float32).reshape(64, 10))
    sources = {
        "memory": ArraySampleSource(np.load(path)),
        "mapped": ArraySampleSource(np.load(path, mmap_mode="r")),
        "file": NpySource(path),
    }
    found = {}
    for name, source in sources.items():
        loader = DataLoader([source, BatchTransform(8)])
        start = loader.init_state(7)
        traits = loader._built.plan.traits
        costs = (traits.waits, traits.cheap, traits.may_fail, traits.immediate)
        assert (traits.blocks, traits.workers) == (0, 0)
        program = jax.jit(loader.next_batch).lower(start).as_text()
        found[name] = (costs, "millstream_batch_later" in program)
        same_walk(scanned(loader, start, 8), iterated(loader, start, 8))
    assert found["memory"] == ((False, True, False, True), False)
    assert found["mapped"] == found["file"] == ((True, True, True, False), True)


def test_donating_a_source_does_not_change_its_batches() -> None:
    data = jnp.arange(N * 1024, dtype=jnp.int32).reshape(N, 1024)
    wanted = np.array(data)
    loader = DataLoader([ArraySampleSource(data, "sequential"), BatchTransform(N)])
    write = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
    result = write(data)
    del data
    more = [jax.block_until_ready(jnp.full((N, 1024), -1, jnp.int32)) for _ in range(8)]
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert np.array_equal(batch, wanted)
    assert int(result[0, 0]) == int(more[0][0, 0]) == -1


def test_donating_a_batch_does_not_change_the_source_or_other_batches() -> None:
    big = np.arange(40 * 10_000, dtype=np.int32).reshape(40, 10_000)
    for data in (rows_of(40)["x"], big):
        wanted = data.copy()
        loader = DataLoader([ArraySampleSource(data), BatchTransform(32)], prefetch=2)
        write = jax.jit(lambda x: x * 0 - 1, donate_argnums=0)
        expected = specified(loader, loader.init_state(0), 10)
        for step, (batch, _) in enumerate(
            loader.iterate(loader.init_state(0), steps=10)
        ):
            assert np.array_equal(batch, expected[0][step])
            assert int(write(batch)[0, 0]) == -1
        assert np.array_equal(data, wanted)


def test_the_source_keeps_its_arrays_alive() -> None:
    def made() -> DataLoader:
        data = np.arange(N * 50_000, dtype=np.int32).reshape(N, 50_000)
        return DataLoader(
            [ArraySampleSource({"x": data}, "sequential"), BatchTransform(N)]
        )

    loader = made()
    others = [np.full((N, 50_000), -1, np.int32) for _ in range(3)]
    batch, _, _ = loader.next_batch(loader.init_state(0))
    assert np.array_equal(batch["x"][:, 0], np.arange(N) * 50_000)
    assert len(others) == 3


def test_one_source_serves_several_loaders() -> None:
    source = ArraySampleSource(rows_of(N))
    assert len(source) == source.num_samples == N
    one = DataLoader([source, BatchTransform(4)])
    two = DataLoader([source, CastTransform("y", jnp.float32), BatchTransform(3)])
    assert one.element_spec()["y"].dtype == jnp.uint8
    assert two.element_spec()["y"].dtype == jnp.float32


@pytest.mark.parametrize("shuffle", [True, False])
def test_splits_partition_the_samples(shuffle: bool) -> None:
    source = ArraySampleSource(np.arange(100), "sequential")
    parts = source.split(0.7, 0.2, 0.1, seed=3, shuffle=shuffle)
    found = []
    for part, size in zip(parts, (70, 20, 10), strict=True):
        loader = DataLoader([part, BatchTransform(size)])
        assert loader.steps_per_epoch == 1
        found.append(np.asarray(loader.next_batch(loader.init_state(0))[0]))
    together = np.concatenate(found)
    assert sorted(together) == list(range(100))
    assert (together.tolist() == list(range(100))) is not shuffle


def test_folds_validate_each_sample_once() -> None:
    source = ArraySampleSource(np.arange(23))
    seen = []
    for training, validation in source.folds(4, seed=1):
        one, other = (
            DataLoader([part, BatchTransform(1)]) for part in (training, validation)
        )
        held = [int(b[0]) for b, _ in other.iterate(other.init_state(0))]
        used = [int(b[0]) for b, _ in one.iterate(one.init_state(0))]
        assert sorted(held + used) == list(range(23))
        seen += held
    assert sorted(seen) == list(range(23))
