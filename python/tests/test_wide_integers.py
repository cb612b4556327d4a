"""64-bit integers in arrays. Without x64, batches hold them as 32-bit integers."""

from __future__ import annotations

import gc
import mmap
from typing import Any

import jax
import numpy as np
import psutil
import pytest
from millstream import (
    ArraySampleSource,
    BatchTransform,
    CastTransform,
    DataError,
    DataLoader,
)
from millstream._delivery.jit import FAILURES
from walks import (
    indexed,
    iterated,
    jitted,
    resumes_everywhere,
    same_walk,
    scanned,
    specified,
)

N, BATCH, STEPS = 11, 4, 3
SHAPES = [(), (3,), (700,)]
"""Rows of one value, of several, and of more than fit into the buffer."""


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_at_the_edge_of_32_bits_fit(shape: tuple[int, ...]) -> None:
    data = {
        "i": np.resize([-(2**31), 2**31 - 1], (N, *shape)),
        "u": np.resize([0, 2**32 - 1], (N, *shape)).astype(np.uint64),
        "r": np.resize(np.arange(4 * N), (2 * N, *shape))[::-2],  # another stride
    }
    kinds = {"i": np.int32, "u": np.uint32, "r": np.int32}
    narrow = {name: x.astype(kinds[name]) for name, x in data.items()}
    loader = DataLoader([ArraySampleSource(data), BatchTransform(BATCH)])
    state = loader.init_state(0)
    walk = indexed(loader, narrow, state, STEPS)
    same_walk(specified(loader, state, STEPS), walk)
    same_walk(iterated(loader, state, STEPS), walk)
    same_walk(scanned(loader, state, STEPS), walk)
    traced = DataLoader([ArraySampleSource(data), BatchTransform(BATCH)], traced=True)
    same_walk(scanned(traced, state, STEPS), walk)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", 2**40 + 5),
        ("int64", 2**31),
        ("int64", -(2**31) - 1),
        ("uint64", 2**32),
    ],
)
def test_a_number_that_does_not_fit_is_an_error(dtype: str, value: int) -> None:
    data = np.arange(N).astype(dtype)
    data[7] = value
    source = ArraySampleSource({"label": data}, "sequential")
    message = rf"^label: sample 7 holds a .*cannot hold, {value}; set jax_enable_x64"

    def check_error(error: Any) -> None:
        assert isinstance(error, DataError)
        assert (error.sample, error.field) == (7, "label")

    loader = DataLoader([source, BatchTransform(BATCH)])
    batch, state, _ = loader.next_batch(loader.init_state(0))
    assert batch["label"].tolist() == [0, 1, 2, 3]
    with pytest.raises(DataError, match=message) as caught:
        loader.next_batch(state)
    check_error(caught.value)
    with pytest.raises(DataError, match=message):
        list(loader.iterate(state))
    with pytest.raises(DataError, match=message):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, b), steps=1)
    with pytest.raises(FAILURES, match=message[1:]):
        jax.block_until_ready(jax.jit(loader.next_batch)(state))
    check_error(loader.last_error)
    traced = DataLoader([source, BatchTransform(BATCH)], traced=True)
    with pytest.raises(DataError, match=message) as caught:
        traced.next_batch(traced.init_state(0))
    check_error(caught.value)


def test_a_loop_continues_after_an_error() -> None:
    """The loop has compiled its call for small batches when it reaches the error."""
    data = np.arange(1000)
    data[890] = 2**40
    loader = DataLoader([ArraySampleSource(data, "sequential"), BatchTransform(10)])
    iterator = loader.iterate(loader.init_state(0))
    delivered = []
    with pytest.raises(DataError, match="sample 890 holds"):
        delivered.extend(batch for batch, _ in iterator)
    assert (np.concatenate(delivered) == np.arange(890)).all()
    assert iterator.state.step == 89
    data[890] = 890
    rest = [batch for batch, _ in loader.iterate(iterator.state)]
    assert (np.concatenate(rest) == np.arange(890, 1000)).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("casts", [False, True])
def test_a_number_that_does_not_fit_can_be_skipped(
    shape: tuple[int, ...], casts: bool
) -> None:
    data = {
        "label": np.resize(np.arange(4 * N), (N, *shape)),
        "x": np.arange(N, dtype=np.uint8),
    }
    data["label"].reshape(N, -1)[[1, 7], -1] = 2**40
    stages = [CastTransform("x", np.float32)] if casts else []
    loader = DataLoader(
        [ArraySampleSource(data), *stages, BatchTransform(BATCH)], on_error="skip"
    )
    state = loader.init_state(3)
    walk = specified(loader, state, STEPS)
    batches, masks, _ = walk
    for step, words in enumerate([state.words, *walk[2][:-1]]):
        samples = np.asarray(loader.which_samples(words))
        valid = ~np.isin(samples, [-1, 1, 7])
        assert (masks[step] == valid).all()
        expected = data["label"][samples]
        expected[~valid] = 0
        assert (batches["label"][step] == expected).all()
    same_walk(iterated(loader, state, STEPS), walk)
    same_walk(scanned(loader, state, STEPS), walk)
    same_walk(jitted(loader, state, STEPS), walk)
    resumes_everywhere(loader, state, STEPS)
    assert list(loader.skipped) == [1, 7]


def test_opening_wide_integers_reads_none_of_them() -> None:
    """The kernel allocates a page of the map when it is first read."""
    pages = mmap.mmap(-1, 1 << 30)
    process = psutil.Process()
    before = process.memory_info().rss
    source = ArraySampleSource({"y": np.frombuffer(pages, np.int64)})
    loader = DataLoader([source, BatchTransform(128)])
    assert not np.asarray(loader.next_batch(loader.init_state(0))[0]["y"]).any()
    assert process.memory_info().rss - before < 100 << 20
    del source, loader
    gc.collect()
