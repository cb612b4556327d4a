"""Replay buffers: contents, masks, memory and wrong arguments."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import millstream as ms
import numpy as np
import pytest
from conftest import fails
from stream_sources import Count
from walks import iterated, jitted, same_walk, scanned


def reference(
    stage: ms.BufferTransform, steps: int, seed: int
) -> tuple[list[Any], np.ndarray]:
    """Returns the (values, mask) of each step, and the last buffer, from jax.random."""
    stream = Count(steps, holes=True)
    state = stream.init_state(jax.random.PRNGKey(seed))
    rng = jax.random.fold_in(jax.random.PRNGKey(seed), 1)
    buffer = np.zeros(stage.capacity, np.int32)
    count = write = read = seen = 0
    found = []
    for _ in range(steps):
        value, valid, state = stream.next(state)
        rng, write_key, sample_key = jax.random.split(rng, 3)
        ready = count >= stage.prefill
        if valid:
            seen += 1
            row = write
            if stage.write_mode == "reservoir" and count == stage.capacity:
                row = int(jax.random.randint(write_key, (), 0, seen))
            else:
                write = (write + 1) % stage.capacity
            if row < stage.capacity:
                buffer[row] = value["n"]
                count = min(count + 1, stage.capacity)
        size = stage.sample_size
        if not ready:
            rows, mask = [int(value["n"]), *[0] * (size - 1)], [bool(valid)]
            found.append((rows, mask + [False] * (size - 1)))
            continue
        if stage.mode == "shuffled":
            drawn = jax.random.randint(sample_key, (size,), 0, max(count, 1))
            at = np.asarray(drawn)
        else:
            at = (read + np.arange(size)) % max(count, 1)
            read = (read + size) % max(count, 1)
        found.append((buffer[at].tolist(), [True] * size))
    return found, buffer


@pytest.mark.parametrize("mode", ["sequential", "shuffled"])
@pytest.mark.parametrize("write_mode", ["fifo", "reservoir"])
@pytest.mark.parametrize(("size", "capacity", "prefill"), [(1, 4, 2), (3, 6, 6)])
def test_values_are_those_of_the_recipe(
    mode: str, write_mode: str, size: int, capacity: int, prefill: int
) -> None:
    stage = ms.BufferTransform(capacity, prefill, size, mode, write_mode)
    loader = ms.DataLoader([Count(30, holes=True), stage])
    expected, buffer = reference(stage, 30, seed=5)
    run = loader.run(seed=5, epochs=1)
    for (value, mask), (rows, flags) in zip(run, expected, strict=True):
        assert np.atleast_1d(value["n"]).tolist() == rows
        assert np.atleast_1d(mask).tolist() == flags
        assert value["n"].shape == ((size,) if size > 1 else ())
    assert np.asarray(run.state.stream.buffer["n"]).tolist() == buffer.tolist()


def test_a_shuffle_buffer_over_a_native_pipeline() -> None:
    source = ms.ArraySampleSource({"x": np.arange(20, dtype=np.int32)})
    stages = [ms.BufferTransform(8, 4, 1, "shuffled"), ms.BatchTransform(4)]
    loader = ms.DataLoader([source, *stages], prefetch=3)
    start = loader.init_state(1)
    walk = iterated(loader, start, 10)
    same_walk(jitted(loader, start, 10), walk)
    same_walk(scanned(loader, start, 10), walk)
    first = np.asarray(next(loader.run(start))[0]["x"])
    plain = ms.DataLoader([source, ms.BatchTransform(4)])
    assert first.tolist() == next(plain.run(seed=1))[0]["x"].tolist()
    assert "order: Shuffle()" in loader.explain()
    batches = ms.DataLoader([source, ms.BatchTransform(4), ms.BufferTransform(3, 1)])
    values = [np.asarray(b["x"]) for b, _ in batches.run(epochs=1)]
    assert np.shape(values) == (5, 4)


def compiled(capacity: int, write_mode: str) -> str:
    stage = ms.BufferTransform(capacity, 8, 4, "shuffled", write_mode)
    loader = ms.DataLoader([Count(100, holes=True), stage])
    state = loader.init_state(0)

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry + jnp.sum(batch["x"]), None

    def epoch(state: Any) -> Any:
        return loader.scan_epoch(state, 0.0, body)

    program = jax.jit(epoch, donate_argnums=0).lower(state).compile()
    return program.as_text() or ""


@pytest.mark.parametrize("write_mode", ["fifo", "reservoir"])
def test_xla_copies_no_rows(write_mode: str) -> None:
    text = compiled(7777, write_mode)
    assert "[7777" in text
    copies = re.findall(r"\[7777[^=]*\] *copy\(.*", text) + re.findall(
        r"= \w+\[7777[^ ]*\S* copy\(.*", text
    )
    assert copies == []
    assert "donat" in text or "alias" in text


def test_counters_do_not_overflow() -> None:
    for write_mode in ("fifo", "reservoir"):
        stage = ms.BufferTransform(4, 1, 1, "shuffled", write_mode)
        loader = ms.DataLoader([Count(8), stage])
        run = loader.run(seed=0, steps=6)
        list(run)
        state = run.state
        largest = np.int32((1 << 31) - 1)
        state.stream.seen = jnp.asarray(largest)
        before = np.asarray(state.stream.buffer["n"])
        after = loader.run(state, steps=8)
        list(after)
        assert int(after.state.stream.seen) == largest
        changed = np.asarray(after.state.stream.buffer["n"]) != before
        assert changed.sum() == (2 if write_mode == "fifo" else 0)


def test_the_callers_state_is_not_donated() -> None:
    loader = ms.DataLoader([Count(8), ms.BufferTransform(4, 1)])
    state = loader.init_state(0)
    for _ in range(2):
        assert len(list(loader.run(state, epochs=1))) == 8
    _, _, _ = loader.next_batch(state)
    assert int(state.stream.count) == 0


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ((0, 1), ["capacity"]),
        ((4, 0), ["prefill"]),
        ((4, 1, 0), ["sample_size"]),
        ((4, 5), ["prefill", "capacity"]),
        ((4, 4, 5), ["sample_size", "capacity"]),
        ((4, 2, 3), ["prefill must be at least sample_size"]),
        ((4, 2, 1, "random"), ["mode", "random"]),
        ((4, 2, 1, "shuffled", "lifo"), ["write_mode", "lifo"]),
    ],
)
def test_wrong_arguments(arguments: Any, texts: list[str]) -> None:
    fails(lambda: ms.BufferTransform(*arguments), *texts, kind=ValueError)


def test_values_without_arrays() -> None:
    class Empty(Count):
        def next(self, state: Any) -> Any:
            return {}, True, super().next(state)[2]

        def element_spec(self) -> Any:
            return {}

    stages = [Empty(), ms.BufferTransform(2, 1)]
    fails(lambda: ms.DataLoader(stages), "at least one array", kind=ValueError)
    text = ms.DiskSampleSource(4, lambda i: {"x": np.int32(i), "name": "a"})
    fails(lambda: ms.DataLoader([text, ms.BufferTransform(2, 1)]), "host fields")
