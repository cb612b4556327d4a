"""HostCallbackTransform before batching, in order, and over many steps."""

from __future__ import annotations

import os
import traceback
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import rows_of
from millstream import (
    ArraySampleSource,
    BatchTransform,
    DataLoader,
    DiskSampleSource,
    HostCallbackTransform,
    MapTransform,
    RenameTransform,
)
from walks import iterated, jitted, same_walk, scanned, stepped

N, BATCH, STEPS = 11, 4, 3
ROWS = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]]
"""The labels of the real rows of each batch of the first epoch."""


def labels(first: int = 0, end: int | None = None) -> list[int]:
    """Returns the labels of the real rows of some batches."""
    return [label for rows in ROWS[first:end] for label in rows]


class Samples:
    """Records the labels of its samples. Returns twice the array ``x``."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, sample: Any, mask: Any) -> Any:
        assert sample["x"].shape == (3,)
        assert isinstance(mask, np.ndarray)
        assert mask.shape == sample["y"].shape == ()
        assert mask
        self.seen.append(int(sample["y"]))
        return {**sample, "x": 2 * sample["x"]}


def source() -> ArraySampleSource:
    return ArraySampleSource(rows_of(N), "sequential")


def plus_one(value: Any, mask: Any) -> Any:
    return {**value, "x": value["x"] + 1}


def loader_of(fn: Any, **knobs: Any) -> DataLoader:
    before = [MapTransform(plus_one), HostCallbackTransform(fn), MapTransform(plus_one)]
    return DataLoader([source(), *before, BatchTransform(BATCH)], **knobs)


def expected() -> np.ndarray:
    x = np.zeros((STEPS * BATCH, 3), np.int32)
    x[:N] = 2 * (rows_of(N)["x"] + 1) + 1
    return x.reshape(STEPS, BATCH, 3)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("prefetch", [0, 5])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_loop_calls_it_for_each_real_row(
    threads: int, prefetch: int, traced: bool
) -> None:
    samples = Samples()
    loader = loader_of(samples, threads=threads, prefetch=prefetch, traced=traced)
    run = loader.run(seed=0, epochs=1)
    assert samples.seen == []
    for step, (batch, mask) in enumerate(run):
        assert samples.seen == labels(0, step + 1)
        np.testing.assert_array_equal(batch["x"], expected()[step])
        assert mask.sum() == len(ROWS[step])
    state = loader.init_state(0)
    for rows in ROWS:
        samples.seen.clear()
        _, state, _ = loader.next_batch(state)
        assert samples.seen == rows


def test_every_way_of_delivery_gives_the_same_batches() -> None:
    samples = Samples()
    loader = loader_of(samples)
    state = loader.init_state(0)
    walk = iterated(loader, state, STEPS)
    np.testing.assert_array_equal(walk[0]["x"], expected())
    for other in (stepped, jitted, scanned):
        samples.seen.clear()
        same_walk(other(loader, state, STEPS), walk)
        assert samples.seen == labels()
    for step in range(STEPS):  # resumed at each step
        samples.seen.clear()
        rest = jax.tree.map(lambda x, step=step: x[step:], walk)
        same_walk(scanned(loader, state, STEPS - step), rest)
        assert samples.seen == labels(step)
        _, state, _ = loader.next_batch(state)


def test_under_vmap_the_rows_of_each_batch_come_in_order() -> None:
    samples = Samples()
    loader = loader_of(samples)
    states = jax.vmap(loader.init_state)(np.arange(2))
    batch, _, _ = jax.block_until_ready(jax.jit(jax.vmap(loader.next_batch))(states))
    assert samples.seen == ROWS[0] * 2
    np.testing.assert_array_equal(batch["x"], np.stack([expected()[0]] * 2))


def test_a_sample_may_get_another_spec() -> None:
    spec = {"total": jax.ShapeDtypeStruct((2,), np.float32)}

    def total(sample: Any, mask: Any) -> Any:
        return {"total": np.float32([sample["x"].sum(), 1])}

    callback = HostCallbackTransform(total, element_spec_override=spec)
    for remainder, last in (("pad", BATCH), ("partial", 3)):
        loader = DataLoader(
            [source(), callback, BatchTransform(BATCH, remainder=remainder)]
        )
        assert loader.element_spec()["total"].shape == (BATCH, 2)
        batches = [batch["total"] for batch, _ in loader.run(seed=0, epochs=1)]
        wanted = np.zeros((last, 2), np.float32)
        wanted[:3] = [[x.sum(), 1] for x in rows_of(N)["x"][8:]]
        np.testing.assert_array_equal(batches[-1], wanted)
        if remainder == "pad":
            state = loader.init_state(0)
            same_walk(scanned(loader, state, STEPS), iterated(loader, state, STEPS))


def test_it_stands_in_every_position() -> None:
    seen: dict[str, list[int]] = {name: [] for name in ("first", "middle", "last")}

    def note(name: str) -> HostCallbackTransform:
        return HostCallbackTransform(lambda v, m: seen[name].append(np.size(v["z"])))

    rename = RenameTransform({"y": "z"})
    batch = BatchTransform(BATCH)
    stages = [rename, note("first"), note("middle"), batch, note("last")]
    loader = DataLoader([source(), *stages])
    walk = iterated(loader, loader.init_state(0), STEPS)
    wanted = {"first": [1] * N, "middle": [1] * N, "last": [BATCH] * STEPS}
    assert seen == wanted
    for sizes in seen.values():
        sizes.clear()
    same_walk(scanned(loader, loader.init_state(0), STEPS), walk)
    assert seen == wanted
    assert [line.split()[1] for line in loader.explain().splitlines()[5:7]] == [
        "Python",
        "Python",
    ]


def test_skipped_samples_are_not_real_rows() -> None:
    def sample(index: int) -> Any:
        if index == 2:
            raise ValueError("corrupt")
        return {"y": np.int32(index)}

    seen: list[int] = []
    note = HostCallbackTransform(lambda s, m: seen.append(int(s["y"])))
    spec = {"y": jax.ShapeDtypeStruct((), np.int32)}
    read = DiskSampleSource(6, sample, spec, ordering="sequential")
    loader = DataLoader([read, note, BatchTransform(3)], on_error="skip")
    masks = [mask.tolist() for _, mask in loader.run(seed=0, epochs=1)]
    assert masks == [[True, True, False], [True] * 3]
    assert seen == [0, 1, 3, 4, 5]


class Sentinel(Exception):
    pass


def fail_at_six(sample: Any, mask: Any) -> None:
    if sample["y"].ndim == 0 and sample["y"] == 6:
        raise Sentinel("sample 6")
    if sample["y"].ndim and 6 in sample["y"]:
        raise Sentinel("sample 6")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_exceptions_keep_their_type_and_traceback(late: bool, ordered: bool) -> None:
    callback = HostCallbackTransform(fail_at_six, ordered=ordered)
    stages = [callback, BatchTransform(BATCH)]
    loader = DataLoader([source(), *(stages[::-1] if late else stages)])
    start = loader.init_state(0)
    _, second, _ = loader.next_batch(start)

    def body(carry: Any, batch: Any, mask: Any) -> Any:
        return carry, None

    calls = [
        lambda: list(loader.run(seed=0, epochs=1)),
        lambda: loader.next_batch(second),
        lambda: loader.scan_epoch(start, 0, body),
    ]
    for call in calls:
        with pytest.raises(Sentinel, match="sample 6") as caught:
            call()
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert frames[-1].name == "fail_at_six"
    with pytest.raises(jax.errors.JaxRuntimeError, match="sample 6"):
        jax.block_until_ready(jax.jit(loader.next_batch)(second))
    assert isinstance(loader.last_error, Sentinel)
    # The error does not affect later calls.
    loader.scan_epoch(start, 0, body, steps=1)


def test_a_loop_does_not_raise_an_earlier_error() -> None:
    failing = [Sentinel("first"), ValueError("second")]

    def fail(batch: Any, mask: Any) -> None:
        if len(calls) > 1:
            raise failing[len(calls) - 2]

    calls = [0]
    loader = DataLoader([source(), BatchTransform(BATCH), HostCallbackTransform(fail)])
    run = loader.run(seed=0)
    next(run)
    calls.append(0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="first"):
        jax.block_until_ready(jax.jit(loader.next_batch)(loader.init_state(0)))
    calls.append(0)
    with pytest.raises(ValueError, match="second"):
        next(run)


def test_an_error_names_the_leaf_of_a_sample() -> None:
    wrong = HostCallbackTransform(lambda s, m: {**s, "x": s["x"][:2]})
    loader = DataLoader([source(), wrong, BatchTransform(BATCH)])
    message = (
        r"HostCallbackTransform returned int32\[2\] for \['x'\]; expected int32\[3\]"
        r".*element_spec_override.*without the batch axis"
    )
    state = loader.init_state(0)
    with pytest.raises(ValueError, match=message):
        loader.next_batch(state)
    with pytest.raises(ValueError, match=message):
        loader.scan_epoch(state, 0, lambda c, b, m: (c, None))


@pytest.mark.parametrize("late", [False, True])
def test_ordered_calls_come_in_the_order_of_the_batches(late: bool) -> None:
    seen: list[int] = []
    note = HostCallbackTransform(
        lambda v, m: seen.append(int(np.ravel(v["y"])[0])), ordered=True
    )
    stages = [note, BatchTransform(BATCH)]
    loader = DataLoader([source(), *(stages[::-1] if late else stages)])
    wanted = [rows[0] for rows in ROWS] if late else labels()
    state = loader.init_state(0)
    walk = iterated(loader, state, STEPS)
    for way in (jitted, scanned):
        seen.clear()
        same_walk(way(loader, state, STEPS), walk)
        jax.effects_barrier()
        assert seen == wanted

    def total(state: Any) -> Any:
        return loader.scan_epoch(state, 0, lambda c, b, m: (c + m.sum(), None))[1]

    states = jax.vmap(loader.init_state)(np.arange(2))
    for mapped in (loader.next_batch, jax.jit(loader.next_batch), total):
        with pytest.raises(
            ValueError, match=r"HostCallbackTransform\(ordered=True\).*under vmap"
        ):
            jax.vmap(mapped)(states)


def test_kept_samples_do_not_change() -> None:
    kept: list[Any] = []
    note = HostCallbackTransform(lambda s, m: kept.append(s["x"]))
    loader = DataLoader([source(), note, BatchTransform(BATCH)])
    loader.scan_epoch(loader.init_state(0), 0, lambda c, b, m: (c, None))
    np.testing.assert_array_equal(kept, rows_of(N)["x"])


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def log_in_a_scan(steps: int) -> None:
    """Runs the logging example of cyreal's documentation, without printing.

    The callback calls JAX, as the example does. Fails if memory grows by more than 16
    MiB after the first quarter of the steps. A batch has 100 KB.
    """
    losses: list[float] = []
    early = 0

    def log_loss(batch: Any, mask: Any) -> Any:
        nonlocal early
        logits = jnp.mean(batch["image"].astype(jnp.float32), axis=(1, 2, 3))
        errors = (logits - batch["label"].astype(jnp.float32)) ** 2
        losses.append(float(np.asarray(jnp.mean(errors * mask[:, None]))))
        if len(losses) == steps // 4:
            early = resident_bytes()
        return batch

    images = np.arange(300 * 28 * 28, dtype=np.uint8).reshape(300, 28, 28, 1)
    labels = (np.arange(300) % 10).astype(np.int32)
    arrays = ArraySampleSource({"image": images, "label": labels}, "shuffle")
    loader = DataLoader([arrays, BatchTransform(128), HostCallbackTransform(log_loss)])
    _, rows, _ = loader.scan_epoch(
        loader.init_state(0), 0, lambda c, b, m: (c + m.sum(), None), steps=steps
    )
    assert len(losses) == steps
    assert np.all(np.isfinite(losses))
    assert int(rows) == steps // 3 * 300 + steps % 3 * 128
    assert resident_bytes() - early < 16 << 20


def test_logging_in_a_scan() -> None:
    log_in_a_scan(600)


@pytest.mark.soak
def test_logging_in_a_scan_of_many_steps() -> None:
    log_in_a_scan(10_000)
