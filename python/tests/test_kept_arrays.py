"""Functions that keep their arrays: later samples do not overwrite them."""

from __future__ import annotations

import gc
from typing import Any

import jax
import numpy as np
import pytest
import worker_functions as fns
from conftest import Python
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DiskSampleSource,
    PythonMapTransform,
    fill_source,
)

N, BATCH, WIDTH = 64, 4, 3000
KINDS = ["thread", "process"]
SPEC = {"x": jax.ShapeDtypeStruct((WIDTH,), np.float32)}


def walked(loader: DataLoader, epochs: int = 3) -> list[np.ndarray]:
    batches = []
    state = loader.init_state(0)
    for _ in range(epochs):
        iterator = loader.iterate(state)
        batches += [np.array(batch["x"]) for batch, _ in iterator]
        state = iterator.state
    return batches


def numbered() -> ArraySampleSource:
    values = np.arange(N, dtype=np.float32)
    return ArraySampleSource({"x": np.repeat(values[:, None], WIDTH, 1)}, "shuffle")


@pytest.mark.parametrize("prefetch", [0, 3])
def test_arrays_of_a_map_in_threads(prefetch: int) -> None:
    kept: list[tuple[float, np.ndarray]] = []

    def keep(sample: Any) -> Any:
        kept.append((float(sample["x"][0]), sample["x"]))
        return {"x": sample["x"] * 2}

    stage = PythonMapTransform(keep, SPEC, workers=2)
    loader = DataLoader([numbered(), stage, BatchTransform(BATCH)], prefetch=prefetch)
    walked(loader)
    del loader, stage
    gc.collect()
    assert len(kept) >= 3 * N
    for value, array in kept:
        assert (array == value).all()
        array[:] = -1  # and it owns its memory
    assert all((array == -1).all() for _, array in kept)


@pytest.mark.parametrize("prefetch", [0, 3])
def test_arrays_of_a_fill_function_in_threads(prefetch: int, python: Python) -> None:
    """In a separate process, because an error here would crash it."""
    told = python.run(f"""
        import gc
        import jax, numpy as np
        from millstream import BatchTransform, DataLoader, fill_source

        kept = []

        def fill(item, arrays, seed):
            arrays["x"][:] = item
            kept.append((item, arrays))

        spec = {{"x": jax.ShapeDtypeStruct(({WIDTH},), np.float32)}}
        source = fill_source(fill, range({N}), spec, workers=2)
        loader = DataLoader([source, BatchTransform({BATCH})], prefetch={prefetch})
        for seed in range(3):
            for batch, _ in loader.iterate(loader.init_state(seed)):
                rows = np.asarray(batch["x"])
                assert (rows == rows[:, :1]).all()
        del loader, source, batch, rows
        gc.collect()
        print(all((arrays["x"] == item).all() for item, arrays in kept))
        for _, arrays in kept:
            arrays["x"][:] = -1
        kept.clear()
        gc.collect()
        print("alive", np.zeros(100_000).sum())
    """)
    assert told == "True\nalive 0.0\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_may_use_samples_before(kind: str) -> None:
    stage = PythonMapTransform(fns.KeepingMap(), SPEC, worker_kind=kind)
    loader = DataLoader([numbered(), stage, BatchTransform(BATCH)])
    for batch in walked(loader):
        assert (batch == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fill_function_may_use_arrays_before(kind: str) -> None:
    source = fill_source(fns.KeepingFill(), range(N), SPEC, worker_kind=kind)
    loader = DataLoader([source, BatchTransform(BATCH)])
    for batch in walked(loader):
        assert (batch >= 0).all()


def arrays_in(error: BaseException) -> list[np.ndarray]:
    """Returns the arrays in the frames of a traceback, as a debugger would."""
    found: list[np.ndarray] = []
    trace = error.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            inside = value if isinstance(value, list | tuple) else [value]
            for one in inside:
                if isinstance(one, np.ndarray):
                    found.append(one)
                elif isinstance(one, list):
                    found += [x for x in one if isinstance(x, np.ndarray)]
        trace = trace.tb_next
    return found


def test_arrays_of_a_traceback() -> None:
    def sample(index: int) -> Any:
        if index == 6:
            raise ValueError("sample six is bad")
        return {"x": np.full(WIDTH, index, np.float32)}

    source = DiskSampleSource(N, sample, SPEC, "sequential")
    loader = DataLoader([source, BatchTransform(BATCH)])

    def at_step(step: int) -> np.ndarray:
        words = np.asarray(loader.init_state(0).words).copy()
        words[4] = step
        return words

    with pytest.raises(ValueError, match="sample six") as caught:
        loader.next_batch(at_step(1))
    arrays = arrays_in(caught.value)
    assert arrays
    before = [array.copy() for array in arrays]
    for step in range(2, 16):
        loader.next_batch(at_step(step))
    gc.collect()
    for array, then in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, then)
